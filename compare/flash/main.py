#!/usr/bin/env python3
"""Hit ratios of memory with ten times as much flash below it: ebbtide, memcached with extstore, foyer; and ebbtide without flash.

    main.py TRACES [--quick] [--only NAME] [--shares 0.01,0.03]

Traces as for missratio, look-aside, one request after the other, TTLs left out: foyer has none, and the time of a running memcached
is the clock's. Memory is a share of the trace's footprint, in whole MiB, and at least 4 MiB: less memcached does not divide among
its classes. memcached is Debian's, asked over a socket; its pages of flash are as short as it allows where flash is small, and values
come as fast as it writes them (evictions from memory are in the table). foyer gets the better of three orders of eviction.

Bytes written are those that reached the device. Where ebbtide writes more than the peer that writes least, it is run again with so
low a probability of admission that it does not ("as few bytes").

Resident is the most that a process had in memory (with memcached the server). foyer does not count its buffers and its index as memory:
where it misses less than ebbtide, it is run again with so much less that it has about as much resident ("as little memory").
"""
import argparse
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

COMPARE = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(COMPARE), str(COMPARE / "missratio")]

import servers
import traces

PEERS = COMPARE / "target/release/flash-replay"
MIB = 1 << 20
LEAST_MEMORY_MIB = 4
TIMES = 10
# The minimum number of memcached's pages of flash, of 2 MiB at least, which must hold the longest object.
EXTSTORE_PAGES = 32
# So near is as much resident memory.
NEAR_MIB = 2
QUICK = ("web_1999_usertrace", "tencent_block_50k")
EVICTIONS = ("lfu", "s3fifo", "lru")
HEADER = ["trace", "memory, flash MiB", "system", "miss ratio", "MB written", "resident MiB", "remarks"]
Outcome = collections.namedtuple("Outcome", "miss_ratio written resident remarks")


class PeakMemory(threading.Thread):
    """The most memory that a process had resident, in MiB, until shortly before its end. That of `wait4` is not less than
    what this program had when it started the process."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.status = pathlib.Path(f"/proc/{pid}/status")
        self.ended = threading.Event()
        self.mib = 0.0
        self.start()

    def run(self):
        while True:
            line = next((line for line in self.status.read_text().splitlines() if line.startswith("VmHWM")), None)
            self.mib = int(line.split()[1]) / 1024 if line else self.mib
            # No such line: the process has ended.
            if not line or self.ended.wait(0.02):
                return


def run(command, stderr=None):
    """What a command prints, one line; its processor seconds; the most MiB that it had resident; and its remarks, if
    `stderr` is a pipe."""
    with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=stderr, text=True) as process:
        peak = PeakMemory(process.pid)
        line = process.stdout.read().strip()
        remarks = process.stderr.read().strip() if process.stderr else ""
        peak.ended.set()
        peak.join()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {remarks or process.returncode}")
    return line, usage.ru_utime + usage.ru_stime, peak.mib, remarks


def line_and_resident(command):
    """What a command prints, one line, and the most MiB that it had resident."""
    line, _, resident, _ = run(command)
    return line, resident


class Bench:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.file = self.folder / "flash"
        # memcached opens it as nobody.
        self.folder.chmod(0o777)

    def plain(self, trace):
        """The trace without TTLs, and its longest value."""
        path = self.folder / f"{trace.name}.csv"
        names = ("get", "set", "delete")
        with open(path, "w") as file:
            file.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
            columns = (trace.time, trace.key, trace.key_size, trace.value_size, trace.op)
            for time, key, key_size, value_size, op in zip(*(column.tolist() for column in columns)):
                file.write(f"{time},{key},{key_size},{value_size},{names[op]},0\n")
        return path, min(int(trace.value_size.max()), MIB)

    def ebbtide(self, path, memory, flash, *more):
        below = ["--flash", self.file, "--flash-size", flash * MIB, *more] if flash else []
        line, resident = line_and_resident([servers.EBBTIDE, "replay", path, "--memory", memory * MIB, "--json", *below])
        self.file.unlink(missing_ok=True)
        report = json.loads(line)
        below = report.get("flash") or {"written_bytes": 0, "dropped": 0}
        remarks = f"{below['dropped']} dropped" if below["dropped"] else ""
        return Outcome(report["miss_ratio"], below["written_bytes"], resident, remarks)

    def within(self, path, memory, flash, all_of_it, least):
        """As few bytes as the least of the peers."""
        probability = 1.0
        outcome = all_of_it
        for _ in range(6):
            if outcome.written <= least:
                break
            probability *= least / outcome.written * 0.98
            outcome = self.ebbtide(path, memory, flash, "--flash-admission", f"probability:{probability:.4f}")
        return outcome._replace(remarks=f"admission {probability:.2f}")

    def memcached(self, path, memory, flash, largest):
        page = max(2, min(64, flash // EXTSTORE_PAGES // 4 * 4))
        buffer = min(page, 4)
        options = f"ext_page_size={page},ext_wbuf_size={buffer},ext_path={self.file}:{flash}M"
        with servers.running(servers.memcached, memory, flags=["-o", options]) as server:
            gets, misses, _, _ = self.replay(path, "memcached", "--port", server.port)
            stats, resident = server.stats(), server.peak_resident_bytes() / MIB
            # Its own count has what waits in its buffers still, and not what these are filled up with.
            written = max(server.disk_write_calls(buffer * MIB) * buffer * MIB, int(stats["extstore_bytes_written"]))
        self.file.unlink(missing_ok=True)
        remarks = f"{stats['evictions']} evicted from memory, pages of {page} MiB"
        return Outcome(misses / gets, written, resident, remarks)

    def foyer(self, path, memory, flash, largest):
        outcomes = []
        for eviction in EVICTIONS:
            options = ["--memory", memory * MIB, "--flash", flash * MIB, "--path", self.file, "--largest", largest, "--eviction", eviction]
            gets, misses, written, resident = self.replay(path, "foyer", *options)
            self.file.unlink(missing_ok=True)
            outcomes.append(Outcome(misses / gets, written, resident, eviction))
        return min(outcomes)

    def foyer_within(self, path, memory, flash, largest, outcome, resident):
        """With about so much resident."""
        for _ in range(4):
            more = round(resident - outcome.resident)
            if abs(more) <= NEAR_MIB or memory + more <= 0:
                break
            memory += more
            outcome = self.foyer(path, memory, flash, largest)
        return outcome._replace(remarks=f"{outcome.remarks}, memory of {memory} MiB")

    def replay(self, path, *arguments):
        line, resident = line_and_resident([PEERS, path, *arguments])
        return *map(int, line.replace("-", "0").split(",")), resident


def cells(trace, shares):
    footprint = trace.footprint_bytes()
    for share in shares:
        memory = round(footprint * share / MIB)
        if memory >= LEAST_MEMORY_MIB:
            yield memory


def measure(bench, trace, memory, plain):
    flash = memory * TIMES
    path, largest = plain
    yield "ebbtide, no flash", bench.ebbtide(path, memory, 0)
    ours = bench.ebbtide(path, memory, flash)
    yield "ebbtide", ours
    extstore, foyer = bench.memcached(path, memory, flash, largest), bench.foyer(path, memory, flash, largest)
    least = min(extstore.written, foyer.written)
    if ours.written > least:
        yield "ebbtide, as few bytes", bench.within(path, memory, flash, ours, least)
    yield "memcached, extstore", extstore
    yield "foyer", foyer
    if foyer.miss_ratio < ours.miss_ratio:
        yield "foyer, as little memory", bench.foyer_within(path, memory, flash, largest, foyer, ours.resident)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="a few short traces, one size")
    parser.add_argument("--only", action="append")
    parser.add_argument("--shares", default="0.01,0.03", help="of the footprint, for memory")
    given = parser.parse_args()
    shares = [0.03] if given.quick else list(map(float, given.shares.split(",")))
    only = given.only or (QUICK if given.quick else None)
    print("| " + " | ".join(HEADER) + " |\n|" + "---|" * len(HEADER), flush=True)
    for path in sorted(given.traces.glob("*.csv.zst")):
        if only and traces.name_of(path) not in only:
            continue
        trace = traces.load(path, COMPARE / "target/missratio/traces")
        with tempfile.TemporaryDirectory(dir=COMPARE / "target") as folder:
            bench = Bench(folder)
            sizes = list(cells(trace, shares))
            plain = bench.plain(trace) if sizes else None
            for memory in sizes:
                for system, outcome in measure(bench, trace, memory, plain):
                    row = [trace.name, f"{memory}, {memory * TIMES}", system, f"{outcome.miss_ratio:.4f}",
                           f"{outcome.written / 1e6:.0f}", f"{outcome.resident:.0f}", outcome.remarks]
                    print("| " + " | ".join(row) + " |", flush=True)


if __name__ == "__main__":
    main()
