#!/usr/bin/env python3
"""Static reservations, the controller and the offline optimum on the ten applications, or on traces as tenants.

    evaluate.py --ebbtide BINARY --seeds 11,12,13,14,15 [--swap 1,2]
    evaluate.py --ebbtide BINARY --traces FOLDER --names a,b,c,d [--memory 10%]

The first form makes the applications of each seed (generate.py) and prints a Markdown table. The second merges traces
(`<name>.csv.zst`), each stretched to the same time, into one of four tenants that share a part of their objects' bytes.
Static reservations there are in proportion to the bytes of each tenant's objects. The gain is misses avoided: over the
whole trace, in which the controller has to find the division, and over its second half.
"""
import argparse
import heapq
import io
import itertools
import json
import pathlib
import subprocess
import sys
import tempfile

import generate

KEYS_OF_TENANT = 1 << 40
SECONDS = 10_800


def replay(binary, folder, memory, divide, trace="trace.csv"):
    command = [binary, "replay", folder / trace, "--memory", str(memory), "--pools", folder / "pools.toml"]
    done = subprocess.run([*command, "--divide", divide, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def write_first_half(folder):
    """Writes the rows before the middle of the trace's time as first-half.csv."""
    with open(folder / "trace.csv") as rows, open(folder / "first-half.csv", "w") as out:
        out.write(next(rows))
        out.writelines(itertools.takewhile(lambda row: int(row.partition(",")[0]) < SECONDS // 2, rows))


def second_half(binary, folder, memory, divide, whole):
    """Misses and miss ratio of the second half: a replay depends on the requests before it alone."""
    half = replay(binary, folder, memory, divide, "first-half.csv")
    misses, gets = whole["misses"] - half["misses"], whole["gets"] - half["gets"]
    return {"misses": misses, "miss_ratio": misses / gets}


def row(label, binary, folder, memory, base="static"):
    ways = (base, "auto", "optimal")
    reports = [replay(binary, folder, memory, way) for way in ways]
    write_first_half(folder)
    halves = [second_half(binary, folder, memory, way, whole) for way, whole in zip(ways, reports)]
    undone = sum(decision["is_undo"] for decision in reports[1]["decisions"])
    for part, (fixed, auto, best) in (("whole", reports), ("second half", halves)):
        gain, avoided = fixed["misses"] - best["misses"], fixed["misses"] - auto["misses"]
        share = f"{avoided / gain:.1%}" if gain > 0 else "-"
        print(
            f"| {label}, {part} | {memory / (1 << 20):.0f} MiB | {fixed['miss_ratio']:.4f} | {auto['miss_ratio']:.4f} "
            f"| {best['miss_ratio']:.4f} | {avoided / fixed['misses']:.1%} | {share} "
            f"| {len(reports[1]['decisions'])}, {undone} |",
            flush=True,
        )
    return reports


def heading(first):
    print(f"| {first} | memory | static | auto | optimum | fewer misses | of the optimum's gain | decisions, undone |")
    print("|---|---|---|---|---|---|---|---|")


def applications(given):
    heading("seed")
    for seed in given.seeds:
        folder = given.folder / f"applications-{seed}"
        memory, digest = generate.generate(seed, folder, given.swap)
        reports = row(f"{seed}", given.ebbtide, folder, memory)
        if given.pools:
            for pools in zip(*(report["pools"] for report in reports)):
                hits = [f"{1 - pool['misses'] / max(pool['hits'] + pool['misses'], 1):.2%}" for pool in pools]
                sizes = [f"{pool['memory_bytes'] / (1 << 20):.1f}" for pool in pools]
                print(f"    {pools[0]['name']:8} hits {' '.join(hits)}  MiB {' '.join(sizes)}  sha256 {digest[:12]}")


def tenant_rows(path, number, name):
    """Rows of a trace with the time of the merged one: (time, row without its time)."""
    process = subprocess.Popen(["zstd", "-dc", path], stdout=subprocess.PIPE)
    lines = io.TextIOWrapper(process.stdout).read().splitlines()[1:]
    for at, line in enumerate(lines):
        _, key, rest = line.split(",", 2)
        yield at * SECONDS // len(lines), f"{int(key) + number * KEYS_OF_TENANT},{rest},{name}\n"


def tenants(given):
    folder = given.folder / "tenants"
    folder.mkdir(parents=True, exist_ok=True)
    streams = [tenant_rows(given.traces / f"{name}.csv.zst", n, name) for n, name in enumerate(given.names, 1)]
    footprint, seen = 0, set()
    with open(folder / "trace.csv", "w") as out:
        out.write("timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n")
        for second, rest in heapq.merge(*streams, key=lambda row: row[0]):
            key, key_size, value_size, _ = rest.split(",", 3)
            if key not in seen:
                seen.add(key)
                footprint += int(key_size) + int(value_size)
            out.write(f"{second},{rest}")
    (folder / "pools.toml").write_text("".join(f'[[pool]]\nname = "{name}"\n' for name in given.names))
    heading("share of the bytes")
    for share in given.memory:
        row(f"{share:.0%}", given.ebbtide, folder, int(footprint * share), "proportional")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[])
    parser.add_argument("--swap", type=lambda text: tuple(int(number) for number in text.split(",")))
    parser.add_argument("--pools", action="store_true", help="hit ratios and memory of each application, too")
    parser.add_argument("--traces", type=pathlib.Path)
    parser.add_argument("--names", type=lambda text: text.split(","))
    shares = lambda text: [float(share.rstrip("%")) / 100 for share in text.split(",")]
    parser.add_argument("--memory", type=shares, default=[0.03, 0.1, 0.3])
    with tempfile.TemporaryDirectory() as folder:
        parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(folder))
        given = parser.parse_args()
        applications(given)
        if given.traces:
            tenants(given)


if __name__ == "__main__":
    main()
