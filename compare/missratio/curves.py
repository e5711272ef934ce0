#!/usr/bin/env python3
"""The curves of `ebbtide mrc` beside other simulators.

    curves.py --ebbtide BINARY --traces FOLDER [--names a,b]

Reference policies, exact, against the rows of FOLDER/reference-miss-ratios.csv at 1, 10 and 30 % of the footprint: rows
by bytes, and rows by objects of traces whose objects have one size. Not of a trace with sets, deletes and TTLs, whose
rows took each line for a get. And the sampled curve of LRU against the exact one at twenty sizes, of gets and of their
bytes. Fails if a policy that knows neither chance nor ties is further from its row than a thousandth, if the mean error
of a sampled curve of gets is more than a hundredth, or if less than nine tenths of all byte miss ratios lie within
their intervals.
"""
import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys

SHARES = ("0.01", "0.1", "0.3")
OTHER_NAMES = {"wtinylfu": "w-tinylfu"}
POLICIES = "fifo,lru,clock,sieve,2q,belady,lirs,slru,gdsf,s3fifo,arc,w-tinylfu,lhd".split(",")
MUST_AGREE = ("fifo", "lru", "clock", "sieve", "2q", "belady", "lirs")
TOLERANCE = 0.001
SAMPLED_TOLERANCE = 0.01
MIN_BYTES_INSIDE = 0.9


def mrc(binary, trace, *flags):
    done = subprocess.run([binary, "mrc", trace, "--json", *flags], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{trace}: {done.stderr}")
    return json.loads(done.stdout)["curves"]


def object_bytes(info):
    """Bytes of an object, of traces that have one size of objects."""
    size, rest = divmod(info["footprint_bytes"], info["objects"])
    return size if rest == 0 and info["sizes"]["value_mean"] == info["sizes"]["value_max"] else None


def rows_of(folder):
    """{trace: rows}, of those that libCacheSim made and did not call degenerate."""
    rows = collections.defaultdict(list)
    with open(folder / "reference-miss-ratios.csv", newline="") as file:
        for row in csv.DictReader(file):
            name = OTHER_NAMES.get(row["algo"], row["algo"])
            if name in POLICIES and row["size_frac"] in SHARES and "degenerate" not in row["note"]:
                rows[row["trace"]].append({**row, "algo": name})
    return rows


def against_references(given, name, rows, errors):
    trace = given.traces / f"{name}.csv.zst"
    info = subprocess.run([given.ebbtide, "trace", "info", trace, "--json"], capture_output=True, check=True).stdout
    info = json.loads(info)
    if info["writes"] + info["deletes"] > 0:
        return
    in_bytes = [(int(row["cache_size"]), row) for row in rows if row["mode"] == "byte"]
    if rows and not in_bytes:
        if (size := object_bytes(info)) is None:
            return
        in_bytes = [(int(row["cache_size"]) * size, row) for row in rows]
    if not in_bytes:
        return
    sizes = ",".join(map(str, sorted({size for size, _ in in_bytes})))
    curves = mrc(given.ebbtide, trace, "--exact", "--policy", ",".join(POLICIES), "--sizes", sizes)
    found = {
        (curve["policy"], point["memory_bytes"]): point["miss_ratio"] for curve in curves for point in curve["points"]
    }
    for size, row in in_bytes:
        if (miss_ratio := found.get((row["algo"], size))) is not None:
            error = miss_ratio - float(row["miss_ratio"])
            errors[row["algo"]].append((abs(error), f"{name} {float(row['size_frac']):.0%} {error:+.4f}"))


def sampled_lru(given, name):
    trace = given.traces / f"{name}.csv.zst"
    sampled, = mrc(given.ebbtide, trace, "--policy", "lru")
    points = [point for point in sampled["points"] if point["memory_bytes"] > 0]
    step = max(1, len(points) // 20)
    points = points[::step][:20]
    sizes = ",".join(str(point["memory_bytes"]) for point in points)
    exact, = mrc(given.ebbtide, trace, "--policy", "lru", "--exact", "--sizes", sizes)
    found = [(point, next(true for true in exact["points"] if true["memory_bytes"] == point["memory_bytes"])) for point in points]
    columns = []
    for ratio, low, high in (("miss_ratio", "low", "high"), ("byte_miss_ratio", "byte_low", "byte_high")):
        errors = [abs(point[ratio] - true[ratio]) for point, true in found]
        # Both are rounded to six digits.
        inside = sum(point[low] - 1e-6 <= true[ratio] <= point[high] + 1e-6 for point, true in found)
        columns.append((sum(errors) / len(errors), max(errors), inside))
    return len(points), columns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--traces", type=pathlib.Path, required=True)
    parser.add_argument("--names", type=lambda text: text.split(","))
    given = parser.parse_args()
    names = given.names or sorted(path.name.removesuffix(".csv.zst") for path in given.traces.glob("*.csv.zst"))
    rows, errors, failed = rows_of(given.traces), collections.defaultdict(list), []
    for name in names:
        against_references(given, name, rows[name], errors)
    print("| policy | rows | mean error | worst | where |\n|---|---|---|---|---|")
    for policy in POLICIES:
        if found := errors[policy]:
            (worst, where), mean = max(found), sum(error for error, _ in found) / len(found)
            print(f"| `{policy}` | {len(found)} | {mean:.4f} | {worst:.4f} | {where} |")
            if policy in MUST_AGREE and worst > TOLERANCE:
                failed.append(f"{policy}: {worst:.4f} from its row")
    print("\n| trace | sizes | mean error | worst | within the interval | bytes: mean error | worst | within |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    points, bytes_inside = 0, 0
    for name in names:
        sizes, columns = sampled_lru(given, name)
        cells = " | ".join(f"{mean:.4f} | {worst:.4f} | {inside}" for mean, worst, inside in columns)
        print(f"| {name} | {sizes} | {cells} |", flush=True)
        points, bytes_inside = points + sizes, bytes_inside + columns[1][2]
        if (mean := columns[0][0]) > SAMPLED_TOLERANCE:
            failed.append(f"{name}: the sampled curve is {mean:.4f} from the exact one")
    print(f"\nbytes: {bytes_inside} of {points} points within their interval")
    if bytes_inside < MIN_BYTES_INSIDE * points:
        failed.append(f"{bytes_inside} of {points} byte miss ratios are within their interval")
    sys.exit("\n".join(failed) or 0)


if __name__ == "__main__":
    main()
