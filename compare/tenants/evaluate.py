#!/usr/bin/env python3
"""Static reservations, the controller and the offline optimum on the ten applications, or on traces as tenants.

    evaluate.py --ebbtide BINARY --seeds 11,12,13,14,15 [--swap 1,2]
    evaluate.py --ebbtide BINARY --traces FOLDER --names a,b,c,d [--memory 10%] [--rows 1000000] [--change e]
    evaluate.py --ebbtide BINARY --mix 500000 [--memory 10%]

The first form makes the applications of each seed (generate.py) and prints a Markdown table. The second merges traces
(`<name>.csv.zst`), each stretched to the same time, into one of four tenants that share a part of their objects' bytes.
Static reservations there are in proportion to the bytes of each tenant's objects, and the controller begins with them.
The gain is misses avoided: over the
whole trace, in which the controller has to find the division, and over its second half.

`--change e`: after half of the requests the first tenant has the requests of trace e in place of its own. Printed are
the misses in parts of the second half, beside those of the division that is best for the second half alone. The third
form generates the workloads c, u1, u2 and n of the Segcache paper, whose union is its workload mix, as four tenants.
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


# Parts of the second half whose misses are counted after a change.
PARTS = 12
MIX = ("c", "u1", "u2", "n")


def replay(binary, folder, memory, divide, trace="trace.csv", pools="pools.toml"):
    command = [binary, "replay", folder / trace, "--memory", str(memory), "--pools", folder / pools]
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


def row(label, binary, folder, memory):
    ways = ("static", "auto", "optimal")
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


def read_rows(path, rows):
    """The first rows of a trace, without its header."""
    process = subprocess.Popen(["zstd", "-dc", path], stdout=subprocess.PIPE)
    with io.TextIOWrapper(process.stdout) as lines:
        next(lines)
        found = [line.rstrip("\n") for line in itertools.islice(lines, rows)]
    process.wait()
    return found


def tenant_rows(lines, number, name):
    """Rows of a trace with the time of the merged one: (time, row without its time)."""
    for at, line in enumerate(lines):
        _, key, rest = line.split(",", 2)
        yield at * SECONDS // len(lines), f"{int(key) + number * KEYS_OF_TENANT},{rest},{name}\n"


def changed_rows(lines, later, numbers, name):
    """The first half of one trace, then the second half of another, at the times of a tenant."""
    first = itertools.takewhile(lambda row: row[0] < SECONDS // 2, tenant_rows(lines, numbers[0], name))
    return itertools.chain(first, (row for row in tenant_rows(later, numbers[1], name) if row[0] >= SECONDS // 2))


def generate_mix(given):
    """The workloads whose union is the Segcache paper's mix, as traces."""
    folder = given.folder / "mix"
    folder.mkdir(parents=True, exist_ok=True)
    for name in MIX:
        words = ["generate", "--preset", name, "--requests", given.mix, "--seed", 1, "--output", folder / f"{name}.csv.zst"]
        subprocess.run([given.ebbtide, *map(str, words), "--overwrite"], check=True, stdout=subprocess.DEVNULL)
    given.traces, given.names = folder, list(MIX)


def second_half_best(binary, folder, memory):
    """The pools of the division that is best for the second half alone, as weights of the file second.toml."""
    with open(folder / "trace.csv") as rows, open(folder / "second-half.csv", "w") as out:
        out.write(next(rows))
        out.writelines(row for row in rows if int(row.partition(",")[0]) >= SECONDS // 2)
    pools = replay(binary, folder, memory, "optimal", "second-half.csv")["pools"]
    table = '[[pool]]\nname = "{name}"\nweight = {weight}\n'
    weights = [table.format(name=pool["name"], weight=max(pool["memory_bytes"] >> 12, 1)) for pool in pools]
    (folder / "second.toml").write_text("".join(weights))


def after_change(given, folder, memory):
    """Misses of the controller in parts after the change, beside the best division of the second half."""
    second_half_best(given.ebbtide, folder, memory)
    print("| requests since the change | controller | best for the second half | more misses |")
    print("|---|---|---|---|")
    before = None
    for part in range(PARTS + 1):
        end = SECONDS // 2 + part * SECONDS // 2 // PARTS
        with open(folder / "trace.csv") as rows, open(folder / "part.csv", "w") as out:
            out.write(next(rows))
            requests = 0
            for row in itertools.takewhile(lambda row: int(row.partition(",")[0]) < end, rows):
                out.write(row)
                requests += 1
        found = [
            replay(given.ebbtide, folder, memory, "auto", "part.csv"),
            replay(given.ebbtide, folder, memory, "static", "part.csv", "second.toml"),
        ]
        now = [(one["misses"], one["gets"]) for one in found]
        if before:
            ratios = [(misses - old) / (gets - asked) for (misses, gets), (old, asked) in zip(now, before)]
            more = ratios[0] / ratios[1] - 1
            print(f"| {requests - since:,} | {ratios[0]:.4f} | {ratios[1]:.4f} | {more:+.1%} |", flush=True)
        else:
            since = requests
        before = now


def tenants(given):
    folder = given.folder / "tenants"
    folder.mkdir(parents=True, exist_ok=True)
    rows = {name: read_rows(given.traces / f"{name}.csv.zst", given.rows) for name in given.names}
    streams = [tenant_rows(rows[name], n, name) for n, name in enumerate(given.names, 1)]
    if given.change:
        later = read_rows(given.traces / f"{given.change}.csv.zst", given.rows)
        streams[0] = changed_rows(rows[given.names[0]], later, (1, len(given.names) + 1), given.names[0])
    footprints, seen = dict.fromkeys(given.names, 0), set()
    with open(folder / "trace.csv", "w") as out:
        out.write("timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n")
        for second, rest in heapq.merge(*streams, key=lambda row: row[0]):
            key, key_size, value_size, _ = rest.split(",", 3)
            if key not in seen:
                seen.add(key)
                footprints[rest.rstrip("\n").rpartition(",")[2]] += int(key_size) + int(value_size)
            out.write(f"{second},{rest}")
    # The reservations of all ways but the optimum: the controller begins with them.
    table = '[[pool]]\nname = "{name}"\nweight = {weight}\n'
    weights = [table.format(name=name, weight=min(max(count >> 12, 1), 1_000_000)) for name, count in footprints.items()]
    (folder / "pools.toml").write_text("".join(weights))
    footprint = sum(footprints.values())
    for share in given.memory if given.change else []:
        print(f"\n{share:.0%} of the bytes, {given.change} in place of {given.names[0]}\n")
        after_change(given, folder, int(footprint * share))
    if given.change:
        return
    heading("share of the bytes")
    for share in given.memory:
        row(f"{share:.0%}", given.ebbtide, folder, int(footprint * share))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=lambda text: [int(seed) for seed in text.split(",")], default=[])
    parser.add_argument("--swap", type=lambda text: tuple(int(number) for number in text.split(",")))
    parser.add_argument("--pools", action="store_true", help="hit ratios and memory of each application, too")
    parser.add_argument("--traces", type=pathlib.Path)
    parser.add_argument("--names", type=lambda text: text.split(","))
    parser.add_argument("--rows", type=int, help="take this many requests of each trace")
    parser.add_argument("--change", metavar="NAME", help="trace that the first tenant has in the second half")
    parser.add_argument("--mix", type=int, metavar="REQUESTS", help="generate the workloads of mix as tenants")
    shares = lambda text: [float(share.rstrip("%")) / 100 for share in text.split(",")]
    parser.add_argument("--memory", type=shares, default=[0.03, 0.1, 0.3])
    with tempfile.TemporaryDirectory() as folder:
        parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path(folder))
        given = parser.parse_args()
        applications(given)
        if given.mix:
            generate_mix(given)
        if given.traces:
            tenants(given)


if __name__ == "__main__":
    main()
