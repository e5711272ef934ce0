"""Gets of values on flash, beside memcached's extstore on the same disk: its post's three tests, by reads in flight.

The data is six times the memory. Each server has one thread, memcached four more for its reads, and a file of its own in the folder
that FLASH_FOLDER names, or else beside the results. Both are filled by sets of what gets have missed, at a pace at which memcached
loses nothing, until that brings no more: 8 MB/s. Then they are measured in turn, cell by cell.

- all from flash: all keys alike, gets only
- mixed: Zipf 0.99, gets only
- with writes: Zipf 0.99, one set to nine gets

Beside them how gets of memory fare while others keep flash busy: at a set rate, alone and beside gets of all keys.

memcached reads through the page cache and would find everything in memory. So that it reads the disk, both run in a group of
processes whose memory, page cache included, is little more than what they were given. Where no such group can be made, that is
told, and memcached's numbers are those of memory. A folder in memory (/dev/shm) tells what the servers themselves cost; its
files count as the group's memory, so there is no limit then.
"""
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time

import client
import results
import servers
from network.setup import CLIENT_CORE, SERVER_CORE, in_turn

MEMORY_MIB = 64
FLASH = "2G"
DATA_BYTES = 6 * MEMORY_MIB << 20
VALUES = [1000, 4000]
# The fill: passes at most, the gain of hits below which another one is in vain, requests per second.
PASSES, GAIN, PACE_BYTES = 4, 0.01, 8e6
TESTS = {
    "all from flash": ["--popularity", "uniform", "--get-ratio", 1],
    "mixed": ["--get-ratio", 1],
    "with writes": ["--get-ratio", 0.9],
}
# Of the first run. The fill has 1.
SEED = 2
# Before a test, at 64 in flight.
WARM_SECONDS = 4
# Connections and requests in flight on each.
DEPTHS = {1: (1, 1), 16: (16, 1), 64: (16, 4), 256: (64, 4)}
PERCENTILES = ["p50_us", "p99_us", "p999_us"]
# Upper bounds of the breakdown of latencies, in microseconds.
BREAKDOWN = [100, 200, 500, 1000, 2000, 5000, 10_000]
# Keys that memory has, and how often they are asked for in a second.
HOT_KEYS, HOT_RATE = 500, 10_000
ALONE, BUSY = "alone", "64 from flash"
# Beside the memory: the program, connections, and memcached's table of hashes.
GROUP_MIB = MEMORY_MIB + 64
GROUPS = pathlib.Path("/sys/fs/cgroup/memory")


def ebbtide(path):
    user = ["-u", "root"] if os.geteuid() == 0 else []
    return servers.ebbtide(MEMORY_MIB, cores=[SERVER_CORE], flags=["--flash", f"{path}:{FLASH}", *user])


def extstore(path):
    # The headers of what is on flash must find pages that values had before.
    options = f"ext_path={path}:{FLASH},ext_threads=4,slab_automove=1"
    return servers.memcached(MEMORY_MIB, cores=[SERVER_CORE], flags=["-o", options])


SERVERS = {"ebbtide": ebbtide, "memcached": extstore}


def is_in_memory(folder):
    filesystem = subprocess.run(["stat", "--file-system", "--format=%T", folder], capture_output=True, text=True, check=True)
    return filesystem.stdout.strip() == "tmpfs"


@contextlib.contextmanager
def confined(server, folder, mib=GROUP_MIB):
    """Limits the memory of a server's process and of the page cache that it causes. Gives whether that could be done."""
    group = GROUPS / f"ebbtide-compare-{server.process.pid}"
    if is_in_memory(folder):
        yield True
        return
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(mib << 20))
        (group / "cgroup.procs").write_text(str(server.process.pid))
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        (GROUPS / "cgroup.procs").write_text(str(server.process.pid))
        group.rmdir()


def load(keys, value_bytes):
    return ["--keys", keys, "--value-size", value_bytes]


def fill(server, keys, value_bytes):
    """Sets what gets have missed, pass by pass, until that brings no more hits."""
    pass_over = [*load(keys, value_bytes), "--popularity", "scan", "--requests", keys, "--get-ratio", 1, "--fill", "--pipeline", 16,
                 "--rate", int(PACE_BYTES / value_bytes)]
    before = -1
    for _ in range(PASSES):
        hits = client.bench(server, *pass_over, cores=[CLIENT_CORE])["hit_ratio"]
        if hits - before < GAIN:
            break
        before = hits
    # What was set last is on its way to flash.
    time.sleep(2)


@contextlib.contextmanager
def filled(name, value_bytes, folder):
    keys = DATA_BYTES // (value_bytes + client.KEY_BYTES)
    path = pathlib.Path(folder) / f"{name}.flash"
    with servers.running(SERVERS[name], path) as server, confined(server, folder) as is_confined:
        fill(server, keys, value_bytes)
        yield server, keys, is_confined
    path.unlink(missing_ok=True)


def measure(rounds, seconds):
    rows = results.Rows("network", "flash", ["round", "server", "value", "test", "depth", "case", "ops", "hit_ratio", "us",
                                             *PERCENTILES, *map(within, BREAKDOWN), "confined"])
    rows_of_hot = results.Rows("network", "flash-hot", ["round", "server", "value", "beside", "ops", *PERCENTILES])
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("FLASH_FOLDER", rows.path.parent)))
    # memcached gives up being root before it opens the file.
    folder.chmod(0o777)
    try:
        for value in VALUES:
            with contextlib.ExitStack() as stack:
                all_filled = {name: stack.enter_context(filled(name, value, folder)) for name in SERVERS}
                measure_filled(all_filled, rounds, seconds, value, rows, rows_of_hot)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(rows)
    show_breakdown(rows)
    show_hot(rows_of_hot)
    return rows


def measure_filled(all_filled, rounds, seconds, value, rows, rows_of_hot):
    """Each cell of all servers in turn, round by round, so that they meet the same disk in the same seconds; who is not measured idles."""
    runs = {}
    for name, (server, keys, _) in all_filled.items():
        runs[name] = Runs(server, load(keys, value), load(HOT_KEYS, value), seconds)
    for test in TESTS:
        for run in runs.values():
            run.warm(test)
        for depth, number in itertools.product(DEPTHS, range(rounds)):
            for name in in_turn(SERVERS, number):
                row = runs[name].gets(test, depth)
                rows.add(round=number, server=name, value=value, **row, confined=all_filled[name][2])
    for run in runs.values():
        # The first time brings them into memory.
        run.hot_gets(ALONE)
    for beside, number in itertools.product((ALONE, BUSY), range(rounds)):
        for name in in_turn(SERVERS, number):
            rows_of_hot.add(round=number, server=name, value=value, beside=beside, **runs[name].hot_gets(beside))


def within(bound_us):
    return f"within_{bound_us}_us"


def percentiles(report):
    return {name: report["latency"][name] for name in PERCENTILES}


def breakdown(report):
    """The share of requests that took no longer than each bound."""
    buckets = [bucket for bucket in report["latency"]["buckets"] if bucket["at_most_us"]]
    up_to = {bound: sum(bucket["requests"] for bucket in buckets if bucket["at_most_us"] <= bound) for bound in BREAKDOWN}
    return {within(bound): requests / report["latency"]["samples"] for bound, requests in up_to.items()}


class Runs:
    """Of one server. Each run has an order of its own: what one brought into memory is not what the next begins with."""

    def __init__(self, server, keys, hot_keys, seconds):
        self.server, self.keys, self.seconds, self.seeds = server, keys, seconds, itertools.count(SEED)
        self.hot = [*hot_keys, "--popularity", "uniform", "--get-ratio", 1, "--connections", 8, "--pipeline", 16,
                    "--rate", HOT_RATE, "--seconds", seconds]

    def bench(self, *arguments):
        return client.bench(self.server, *arguments, "--seed", next(self.seeds), cores=[CLIENT_CORE])

    def run(self, test, depth, seconds):
        connections, pipeline = DEPTHS[depth]
        return self.bench(*self.keys, *TESTS[test], "--connections", connections, "--pipeline", pipeline, "--seconds", seconds)

    def warm(self, test):
        """Memory gets what the test asks for often."""
        self.run(test, 64, WARM_SECONDS)

    def gets(self, test, depth):
        report = self.run(test, depth, self.seconds)
        return {"test": test, "depth": depth, "case": f"{test}\n{depth}", "ops": report["ops_per_second"],
                "hit_ratio": report["hit_ratio"], "us": report["server_us_per_op"], **percentiles(report), **breakdown(report)}

    def hot_gets(self, beside):
        """Gets of what is in memory, alone or beside gets of all keys, most of which are on flash."""
        if beside == ALONE:
            return self.hot_row()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            others = pool.submit(self.run, "all from flash", 64, self.seconds + 2)
            time.sleep(1)
            row = self.hot_row()
            others.result()
        return row

    def hot_row(self):
        report = self.bench(*self.hot)
        return {"ops": report["ops_per_second"], **percentiles(report)}


def show(rows):
    if not all(rows.values("confined")):
        print("No group of processes with a limit of memory could be made: memcached found its values in the page cache.\n")
    table = []
    for value in VALUES:
        for test in TESTS:
            for depth in DEPTHS:
                case = {"value": value, "test": test, "depth": depth}
                for name in SERVERS:
                    where = {"server": name, **case}
                    cells = [rows.spread(column, **where) for column in PERCENTILES]
                    table.append([value, test, depth, name, rows.spread("ops", "{:.1f}", 1e-3, **where),
                                  f"{rows.median('hit_ratio', **where):.4f}", ratios(rows, name, case),
                                  f"{rows.median('us', **where):.1f}", *cells])
    results.markdown(["value, bytes", "test", "in flight", "server", "kops/s (min to max)", "hit ratio", "ebbtide's hits/s over its",
                      "server us per op", "p50 us", "p99 us", "p99.9 us"], table)


def ratios(rows, name, case):
    """Ebbtide's hits per second over a server's, round by round."""
    hits = lambda name: [ops * ratio for ops, ratio in zip(rows.values("ops", server=name, **case),
                                                           rows.values("hit_ratio", server=name, **case))]
    over = [ebbtide / max(other, 1) for ebbtide, other in zip(hits("ebbtide"), hits(name))]
    return f"{statistics.median(over):.2f} ({min(over):.2f} to {max(over):.2f})"


def show_breakdown(rows):
    table = []
    for value in VALUES:
        for test in TESTS:
            for depth in DEPTHS:
                for name in SERVERS:
                    where = {"server": name, "value": value, "test": test, "depth": depth}
                    shares = [f"{rows.median(within(bound), **where):.3f}" for bound in BREAKDOWN]
                    table.append([value, test, depth, name, *shares])
    results.markdown(["value, bytes", "test", "in flight", "server", *(f"<= {bound} us" for bound in BREAKDOWN)], table)


def show_hot(rows):
    table = []
    for value in VALUES:
        for beside in (ALONE, BUSY):
            for name in SERVERS:
                where = {"server": name, "value": value, "beside": beside}
                cells = [rows.spread(column, **where) for column in PERCENTILES]
                table.append([value, beside, name, rows.spread("ops", "{:.1f}", 1e-3, **where), *cells])
    results.markdown(["value, bytes", f"{HOT_KEYS} keys of memory", "server", "kops/s (min to max)", "p50 us", "p99 us", "p99.9 us"], table)
