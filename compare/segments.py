"""Segcache's Fig. 5: do objects that are written one after the other resemble each other?

    ebbtide replay TRACE --memory SIZE --policy fifo --segments segments.csv
    python3 segments.py segments.csv

For N segments that follow each other in a TTL bucket, and for N drawn from all: the mean relative standard deviation of
their mean object size and of their live bytes. Sizes are of all segments; live bytes of those that are in the cache at
the end, so that they are seen at one moment. Merging neighbours pays where the first is the smaller.
"""
import csv
import itertools
import random
import statistics
import sys

WINDOWS = [2, 3, 4, 8, 16]
DRAWS = 2000


def deviation(values):
    mean = statistics.fmean(values)
    return statistics.pstdev(values) / mean if mean else 0.0


def consecutive(chains, count):
    windows = [chain[start:start + count] for chain in chains for start in range(0, len(chain) - count + 1, count)]
    return statistics.fmean(map(deviation, windows)) if windows else None


def drawn(chains, count):
    values = list(itertools.chain.from_iterable(chains))
    if len(values) < count:
        return None
    choice = random.Random(1)
    return statistics.fmean(deviation(choice.sample(values, count)) for _ in range(DRAWS))


def chains(rows, value):
    """The values of each TTL bucket, oldest segment first."""
    rows = sorted(rows, key=lambda row: (row["ttl_min_s"], float(row["opened_s"]), int(row["stamp"])))
    return [[value(row) for row in chain] for _, chain in itertools.groupby(rows, key=lambda row: row["ttl_min_s"])]


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with open(sys.argv[1], newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["sealed_age_s"] and int(row["objects"])]
    present = [row for row in rows if not row["left_age_s"]]
    sizes = chains(rows, lambda row: int(row["bytes"]) / int(row["objects"]))
    live = chains(present, lambda row: int(row["live_bytes"]))
    ages = [float(row["left_age_s"]) for row in rows if row["left_age_s"]]
    print(f"{len(rows)} sealed segments, {len(present)} of them there at the end, {len(sizes)} TTL buckets; "
          f"median age when they left {statistics.median(ages) if ages else 0:.0f} s\n")
    print("| segments | mean object size, consecutive | random | live bytes, consecutive | random |\n|---|---|---|---|---|")
    for count in WINDOWS:
        cells = [part(of, count) for of in (sizes, live) for part in (consecutive, drawn)]
        print(f"| {count} | " + " | ".join("" if cell is None else f"{cell:.3f}" for cell in cells) + " |")


if __name__ == "__main__":
    main()
