#!/usr/bin/env python3
"""Misses of the engine's default beside policies by object: every trace of some directories at shares of its footprint.

    scripts/hit_table.py DIRECTORY... [--ebbtide BINARY] [--base BEFORE.json] [--out NOW.json] [--policy NAME]

For each cell (a trace and a memory size, from 2 MiB on) the table has the miss ratio of the engine, and its ratios to
LRU, to the best of five policies by object (LRU, S3-FIFO, LIRS, W-TinyLFU, GDSF), and for `--policy lru`,
`lru:insertion=1/2`, `1/4`, `1/8`, `2q` and `fifo` to the policy of that name. `--memory` is all-in for the engine
(index, headers, spares), while the policies by object charge keys and values only. Their miss ratios are kept in
target/hit_table, because they do not depend on the engine. With `--base` the table has the engine's ratio to an
earlier `--out`, which is how a change of the policy is judged: no cell may get worse by more than 1 %.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent
REFERENCES = ["lru", "s3fifo", "lirs", "w-tinylfu", "gdsf"]
# Policies of the engine that are also compared with the policy of their name.
INSERTION = [f"lru:insertion={point}" for point in ("1/2", "1/4", "1/8")]
NAMESAKES = {name: name for name in ["s3fifo", "lru", "2q", "fifo", *INSERTION]}
SHARES = [1, 3, 10, 30]
MIN_MEMORY_BYTES = 2 << 20
DEFAULT_MAX_VALUE_BYTES = 1 << 20
SUFFIX = ".csv.zst"


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def by_object(ebbtide, trace, policies):
    """{share: {policy: miss ratio, "memory_bytes": n}} of the policies by object; kept between runs."""
    kept = ROOT / "target" / "hit_table" / f"{trace.name.removesuffix(SUFFIX)}.json"
    if kept.exists() and kept.stat().st_mtime > trace.stat().st_mtime:
        cells = {int(share): cell for share, cell in json.loads(kept.read_text()).items()}
        if all(set(policies) <= set(cell) for cell in cells.values()):
            return cells
    sizes = ",".join(f"{share}%" for share in SHARES)
    curves = run([ebbtide, "mrc", trace, "--exact", "--json", "--sizes", sizes, "--policy", ",".join(policies)])
    cells = {}
    for curve in curves["curves"]:
        for share, point in zip(SHARES, curve["points"], strict=True):
            cell = cells.setdefault(share, {"memory_bytes": point["memory_bytes"]})
            cell[curve["policy"]] = point["miss_ratio"]
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(cells))
    return cells


def engine(args, trace, memory_bytes):
    """The miss ratio of a replay. Values that the default limit refuses are stored where the memory has space for them."""
    max_value = max(DEFAULT_MAX_VALUE_BYTES, memory_bytes // 8) if args.large_values else DEFAULT_MAX_VALUE_BYTES
    command = [args.ebbtide, "replay", trace, "--memory", memory_bytes, "--policy", args.policy, "--json"]
    return run([*command, "--max-value", max_value])["miss_ratio"]


def measured(args, traces):
    """[(trace, share, cell)] with the engine's miss ratio in each cell."""
    cells = []
    namesake = NAMESAKES.get(args.policy)
    policies = REFERENCES + [name for name in [namesake] if name and name not in REFERENCES]
    for trace in traces:
        for share, cell in by_object(args.ebbtide, trace, policies).items():
            if cell["memory_bytes"] >= MIN_MEMORY_BYTES and share in args.shares:
                cells.append((trace, share, cell))
    with ThreadPoolExecutor(args.jobs) as pool:
        misses = pool.map(lambda cell: engine(args, cell[0], cell[2]["memory_bytes"]), cells)
        return [(trace.name.removesuffix(SUFFIX), share, {**cell, "engine": miss})
                for (trace, share, cell), miss in zip(cells, misses, strict=True)]


# Cells below are those of small caches, which have a decision of their own.
LARGE_BYTES = 8 << 20
# The best of these by object, for each cell, is what one default for all loads is measured by.
ONLINE = ("s3fifo", "lirs", "w-tinylfu", "lru")


def ratio(cell, other):
    return cell["engine"] / max(other, 1e-9)


def print_table(cells, base, namesake):
    print("| trace | share | MiB | engine | " + " | ".join(REFERENCES) + " | to LRU | to best | to base |")
    print("|---" * (len(REFERENCES) + 7) + "|")
    columns = {"to LRU": [], "to best": [], "to base": [], "to namesake": []}
    for trace, share, cell in cells:
        references = [cell[policy] for policy in REFERENCES]
        before = base.get(f"{trace} {share}")
        columns["to LRU"].append(ratio(cell, cell["lru"]))
        columns["to best"].append(ratio(cell, min(references)))
        if namesake:
            columns["to namesake"].append(ratio(cell, cell[namesake]))
        if cell["memory_bytes"] >= LARGE_BYTES:
            of_all = columns.setdefault(f"to the best of {', '.join(ONLINE)}, from 8 MiB", [])
            of_all.append(ratio(cell, min(cell[policy] for policy in ONLINE)))
            if namesake:
                columns.setdefault("to namesake, from 8 MiB", []).append(ratio(cell, cell[namesake]))
        if before is not None:
            columns["to base"].append(ratio(cell, before))
        shown = [f"{value:.4f}" for value in (cell["engine"], *references)]
        ratios = [f"{columns['to LRU'][-1]:.3f}", f"{columns['to best'][-1]:.3f}",
                  "" if before is None else f"{ratio(cell, before):.3f}"]
        print(f"| {trace} | {share} % | {cell['memory_bytes'] / (1 << 20):.1f} | {' | '.join(shown + ratios)} |")
    print()
    for name, ratios in columns.items():
        if ratios:
            print(f"{name}: median {statistics.median(ratios):.3f}, mean {statistics.geometric_mean(ratios):.4f}, "
                  f"best {min(ratios):.3f}, worst {max(ratios):.3f}, {len(ratios)} cells")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=pathlib.Path, nargs="+", help="directories with <name>.csv.zst")
    parser.add_argument("--ebbtide", type=pathlib.Path, default=ROOT / "target/release/ebbtide")
    parser.add_argument("--policy", default="s3fifo")
    parser.add_argument("--trace", action="append", help="only this trace")
    parser.add_argument("--shares", type=lambda text: [int(word) for word in text.split(",")], default=SHARES)
    parser.add_argument("--large-values", action="store_true", help="values up to an eighth of the memory")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--base", type=pathlib.Path, help="an earlier --out to compare with")
    parser.add_argument("--out", type=pathlib.Path, help="write the engine's miss ratios to this file")
    args = parser.parse_args()
    traces = sorted(trace for directory in args.directories for trace in directory.glob(f"*{SUFFIX}"))
    if args.trace:
        traces = [trace for trace in traces if trace.name.removesuffix(SUFFIX) in args.trace]
    base = json.loads(args.base.read_text()) if args.base else {}
    cells = measured(args, traces)
    if args.out:
        args.out.write_text(json.dumps({f"{trace} {share}": cell["engine"] for trace, share, cell in cells}, indent=1))
    print_table(cells, base, NAMESAKES.get(args.policy))


if __name__ == "__main__":
    main()
