#!/usr/bin/env python3
"""Replays traces at shares of their footprint under every policy and prints a Markdown table.

    scripts/replay_table.py TRACES_DIRECTORY [--ebbtide target/release/ebbtide] [--trace NAME] [--policy NAME]

TRACES_DIRECTORY holds `<name>.csv.zst` and `reference-miss-ratios.csv` (columns trace, algo, cache_size, miss_ratio,
mode, size_frac), whose rows of mode `byte` give the footprints and the miss ratios to compare with. `--memory` is all-in
for ebbtide (index, headers, spares), while the reference simulators charge keys and values only: at the same number of
bytes they hold more objects.
"""
import argparse
import csv
import json
import pathlib
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

POLICIES = ["merge", "fifo", "random", "cte", "utilization", "s3fifo", "lru", "2q", "merge-sketch"]
FRACTIONS = ["0.01", "0.1", "0.3"]
REFERENCES = ["fifo", "lru", "arc", "s3fifo", "wtinylfu"]
SMALLEST_MEMORY = 256 << 10


def references(path):
    """{(trace, fraction): ({algorithm: miss ratio}, bytes)} of the byte-mode rows."""
    table = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            # A trace of which all objects have one size has object-mode rows only.
            for mode in ("byte", "object"):
                if row["mode"] == mode:
                    ratios, sizes = table.setdefault((row["trace"], row["size_frac"]), ({}, {}))
                    if mode == "byte" or row["algo"] not in ratios:
                        ratios[row["algo"]] = float(row["miss_ratio"])
                    sizes[mode] = int(row["cache_size"])
    return table


def replay(ebbtide, trace, memory, policy, more):
    command = [ebbtide, "replay", str(trace), "--memory", str(memory), "--policy", policy, "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def footprint_bytes(ebbtide, trace):
    """Keys and values of all objects: of a replay in which everything fits, less the metadata."""
    lines = subprocess.run(["zstdcat", str(trace)], capture_output=True, text=True, check=True).stdout.splitlines()
    sizes = {}
    for line in lines[1:]:
        _, key, key_size, value_size, *_ = line.split(",")
        sizes.setdefault(key, int(key_size) + int(value_size))
    return sum(sizes.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--ebbtide", default="target/release/ebbtide")
    parser.add_argument("--trace", action="append", help="only these traces")
    parser.add_argument("--policy", action="append", help="only these policies")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("more", nargs="*", help="passed on to replay, after --")
    arguments = parser.parse_args()
    policies = arguments.policy or POLICIES
    table = references(arguments.traces / "reference-miss-ratios.csv")
    names = sorted(path.name.removesuffix(".csv.zst") for path in arguments.traces.glob("*.csv.zst"))
    print(f"| trace | share | memory | {' | '.join(policies)} | {' | '.join('*' + r + '*' for r in REFERENCES)} |")
    print("|---" * (3 + len(policies) + len(REFERENCES)) + "|")
    for name in names:
        if arguments.trace and name not in arguments.trace:
            continue
        trace = arguments.traces / f"{name}.csv.zst"
        footprint = footprint_bytes(arguments.ebbtide, trace)
        for fraction in FRACTIONS:
            memory = int(footprint * float(fraction))
            ratios = table.get((name, fraction), ({}, {}))[0]
            cells = [f"{ratios[r]:.4f}" if r in ratios else "" for r in REFERENCES]
            if memory < SMALLEST_MEMORY:
                ours = ["-"] * len(policies)
            else:
                with ThreadPoolExecutor(arguments.jobs) as pool:
                    run = lambda policy: replay(arguments.ebbtide, trace, memory, policy, arguments.more)
                    ours = [f"{result['miss_ratio']:.4f}" for result in pool.map(run, policies)]
            print(f"| {name} | {float(fraction):.0%} | {memory} | {' | '.join(ours)} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
