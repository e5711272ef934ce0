#!/usr/bin/env python3
"""RocksDB as a look-aside cache of memory and flash beside ebbtide (CacheLib, section 5.1): misses, processor time, bytes.

    rocksdb.py TRACES [--only NAME] [--shares 0.03]

As flash/main.py: one request after the other, without TTLs, memory is a share of the trace's footprint, flash ten times that. Both
are in the process that reads the trace, whose processor time counts, all threads together. RocksDB has no compression, no log of
writes, direct I/O, and a cache of blocks; how its files are bounded stands in flash-replay/src/rocksdb.rs.
"""
import argparse
import collections
import json
import pathlib
import subprocess
import tempfile

import main as flash
import servers
import traces

COMPACTIONS = ("fifo", "leveled")
HEADER = ["trace", "memory, flash MiB", "system", "miss ratio", "MB written", "processor us per request", "resident MiB", "remarks"]
Outcome = collections.namedtuple("Outcome", "miss_ratio written us resident remarks")


def run(command, requests):
    """What a command prints, the processor time per request and the most MiB that it had resident, and its remarks."""
    line, processor_seconds, resident, remarks = flash.run(command, stderr=subprocess.PIPE)
    return line, processor_seconds / requests * 1e6, resident, remarks


def ebbtide(bench, path, memory, requests):
    below = ["--flash", bench.file, "--flash-size", memory * flash.TIMES * flash.MIB]
    line, us, resident, _ = run([servers.EBBTIDE, "replay", path, "--memory", memory * flash.MIB, "--json", *below], requests)
    bench.file.unlink(missing_ok=True)
    report = json.loads(line)
    dropped = report["flash"]["dropped"]
    return Outcome(report["miss_ratio"], report["flash"]["written_bytes"], us, resident, f"{dropped} dropped" if dropped else "")


def rocksdb(bench, path, memory, requests, compaction):
    command = [flash.PEERS, path, "rocksdb", "--memory", memory * flash.MIB, "--flash", memory * flash.TIMES * flash.MIB,
               "--path", bench.folder / "rocksdb", "--compaction", compaction]
    line, us, resident, remarks = run(command, requests)
    gets, misses, written = map(int, line.split(","))
    return Outcome(misses / gets, written, us, resident, remarks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--only", action="append")
    parser.add_argument("--shares", default="0.03", help="of the footprint, for memory")
    given = parser.parse_args()
    shares = list(map(float, given.shares.split(",")))
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for path in sorted(given.traces.glob("*.csv.zst")):
        if given.only and traces.name_of(path) not in given.only:
            continue
        trace = traces.load(path, flash.COMPARE / "target/missratio/traces")
        with tempfile.TemporaryDirectory(dir=flash.COMPARE / "target") as folder:
            bench = flash.Bench(folder)
            sizes = list(flash.cells(trace, shares))
            plain = bench.plain(trace)[0] if sizes else None
            for memory in sizes:
                rows = {"ebbtide": ebbtide(bench, plain, memory, len(trace.key))}
                for compaction in COMPACTIONS:
                    rows[f"rocksdb, {compaction}"] = rocksdb(bench, plain, memory, len(trace.key), compaction)
                for system, outcome in rows.items():
                    row = [trace.name, f"{memory}, {memory * flash.TIMES}", system, f"{outcome.miss_ratio:.4f}",
                           f"{outcome.written / 1e6:.0f}", f"{outcome.us:.2f}", f"{outcome.resident:.0f}", outcome.remarks]
                    print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
