#!/usr/bin/env python3
"""Bytes written to flash with admission by history, beside admission by chance at the same hit ratio.

    history.py FOLDER NAME      CacheLib's distributions NAME.pop.json and NAME.sizes.json, as in its graph_cache workloads
    history.py --trace FILE     a trace of missratio's; without TTLs, and if it is shorter than six hours, stretched to twelve

The first makes a trace of twelve hours in which two thirds of the most popular tenth of the keys give way to new ones each hour. ebbtide
replays it with several probabilities and several least numbers of reads; between two probabilities bytes are taken to follow the
hit ratio in a line. `<`: no probability has that number of hits, and the bytes are over those of admitting everything. The filters of the history
are inside the memory.
"""
import argparse
import json
import pathlib
import sys
import tempfile

COMPARE = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(COMPARE), str(COMPARE / "missratio")]

import numpy

import servers
import traces
from systems import lines

HOURS = 12
KEYS = 60_000
REQUESTS_PER_HOUR = 90_000
KEY_BYTES = 20
PROBABILITIES = (1, 0.6, 0.4, 0.25, 0.15, 0.08, 0.04, 0.02)
MIN_READS = (0.1, 0.2, 0.4, 0.8)


def generate(folder, name, path):
    popularity = json.loads((folder / f"{name}.pop.json").read_text())
    sizes = json.loads((folder / f"{name}.sizes.json").read_text())
    random = numpy.random.default_rng(1)
    buckets, weights = (numpy.array(popularity[part], float) for part in ("popularityBuckets", "popularityWeights"))
    # A key of the workload stands for as many as the scale leaves out, by the middle of its place in the distribution.
    places = (numpy.arange(KEYS) + 0.5) / KEYS * buckets.sum()
    bucket = numpy.searchsorted(numpy.cumsum(buckets), places)
    rate = weights[bucket] / buckets[bucket]
    order = numpy.argsort(-rate)
    share = numpy.cumsum(rate[order]) / rate.sum()
    edges, chances = numpy.array(sizes["valSizeRange"]), numpy.array(sizes["valSizeRangeProbability"], float)
    names = numpy.arange(KEYS)
    fresh = KEYS
    once = popularity["oneHits"]
    with open(path, "w") as file:
        file.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
        for hour in range(HOURS):
            if hour:
                replaced = random.choice(KEYS // 10, KEYS // 15, replace=False)
                names[replaced] = numpy.arange(fresh, fresh + len(replaced))
                fresh += len(replaced)
            ranks = numpy.searchsorted(share, random.random(REQUESTS_PER_HOUR))
            keys = names[numpy.minimum(ranks, KEYS - 1)]
            alone = numpy.flatnonzero(random.random(REQUESTS_PER_HOUR) < once)
            keys[alone] = numpy.arange(fresh, fresh + len(alone))
            fresh += len(alone)
            times = hour * 3600 + numpy.arange(REQUESTS_PER_HOUR) * 3600 // REQUESTS_PER_HOUR
            for time, key in zip(times.tolist(), keys.tolist()):
                # The size follows from the key.
                mixed = (key * 0x9E3779B97F4A7C15 >> 11) % (1 << 30) / (1 << 30)
                value = int(edges[numpy.searchsorted(sums(chances), mixed)])
                file.write(f"{time},{key},{KEY_BYTES},{value},get,0\n")


def stretched(trace, path):
    """Most clocks of the traces are assumed, a thousand requests a second, and the history knows hours."""
    time, key, key_size, value_size, op, _ = traces.parse(trace)
    time = time - time[0]
    if time[-1] < HOURS * 3600 // 2:
        time = time.astype(float) if time[-1] else numpy.arange(len(time), dtype=float)
        time = (time * (HOURS * 3600 / time[-1])).astype(int)
    with open(path, "w") as file:
        file.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
        for row in zip(*(column.tolist() for column in (time, key, key_size, value_size, op))):
            file.write("{},{},{},{},{},0\n".format(*row[:4], ("get", "set", "delete")[row[4]]))


def sums(chances, kept={}):
    if "sums" not in kept:
        kept["sums"] = numpy.cumsum(chances) / chances.sum()
    return kept["sums"]


def replay(path, given, folder, admission):
    file = pathlib.Path(folder) / "flash"
    report = json.loads(lines([given.ebbtide, "replay", path, "--memory", given.memory, "--flash", file, "--flash-size", given.flash,
                               "--flash-admission", admission, "--json"])[0])
    file.unlink(missing_ok=True)
    row = (1 - report["miss_ratio"], report["flash"]["written_bytes"])
    print(f"| {admission} | {row[0]:.4f} | {row[1] / 1e6:.0f} |", end="", flush=True)
    return row


def of_chance(points, hit_ratio, written):
    """The bytes over those of chance for this hit ratio, between the two probabilities next to it; none below all of them."""
    points = sorted(points)
    if hit_ratio > points[-1][0]:
        return f"< {written / points[-1][1]:.0%}"
    for (low, few), (high, many) in zip(points, points[1:]):
        if low <= hit_ratio <= high:
            return f"{written / (few + (many - few) * (hit_ratio - low) / (high - low)):.0%}"
    return "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--trace", type=pathlib.Path)
    parser.add_argument("--memory", default="4m")
    parser.add_argument("--flash", default="12m")
    parser.add_argument("--keys", default="64k", help="different keys in an hour, for the filters")
    parser.add_argument("--min-reads", type=float, nargs="+", default=MIN_READS, help="reads an hour that make it worth a write")
    parser.add_argument("--ebbtide", default=servers.EBBTIDE)
    given = parser.parse_args()
    if not given.trace and not given.name:
        parser.error("name a trace, or a folder of distributions and one of them")
    (COMPARE / "target").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=COMPARE / "target") as folder:
        path = pathlib.Path(folder) / "trace.csv"
        if given.trace:
            stretched(given.trace, path)
        else:
            generate(given.folder, given.name, path)
        print("| admission | hit ratio | MB written | of what chance writes for it |\n|---|---|---|---|", flush=True)
        points = []
        for probability in PROBABILITIES:
            points.append(replay(path, given, folder, f"probability:{probability}"))
            print(" |")
        for reads in given.min_reads:
            hit_ratio, written = replay(path, given, folder, f"history:{given.keys}:{reads}")
            print(f" {of_chance(points, hit_ratio, written)} |", flush=True)


if __name__ == "__main__":
    main()
