#!/usr/bin/env python3
"""Measures gets of memory while writes wait for flash.

    scripts/flash_wait_latency.py [--rounds N]

Three states of one server with 16 MiB of memory and two workers: nothing else to do; clients that set new values in closed loops,
faster than the device takes what that evicts; the same over a device that has stopped. The device is ext4 on a loop device whose
file lies on another ext4 in memory; it stops while `fsfreeze` freezes that one, so the script takes root and loop devices. Gets of
50 keys are due by the clock (`ebbtide bench --rate`), over eight connections, and their latency counts from when they were due.

It cannot see the network, and all clients share the machine's cores with the server: compare the states, not the absolute times.
"""
import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from harness import EBBTIDE, Server, free_port
from test_flash_stall import Disk, filesystem

SECONDS = 8
RATE = 5000
# So few that each is read often enough to stay in memory.
HOT_KEYS = 50
WRITERS = 4
STATES = ("nothing else", "device behind", "device stalled")
COUNTERS = ("ebbtide_memory_waits_total", "ebbtide_flash_drops_total", "ebbtide_flash_hits_total")


def bench(server, *words):
    command = [EBBTIDE, "bench", "--target", f"127.0.0.1:{server.port}", "--json", *words]
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True)


def reported(process):
    return json.loads(process.communicate()[0])


def counted(server):
    """The counters by name, each summed over its labels."""
    sums = dict.fromkeys(COUNTERS, 0)
    for line in server.fetch("/metrics").splitlines():
        name = line.split("{")[0].split(" ")[0]
        if name in sums:
            sums[name] += float(line.rsplit(" ", 1)[1])
    return sums


def measured(server, disk, state):
    """The latency of the gets, and what the writers did beside them."""
    hot = ["--keys", HOT_KEYS, "--exponent", 0, "--value-size", 300, "--connections", 8]
    reported(bench(server, *hot, "--get-ratio", 0, "--requests", 5000))
    before = counted(server)
    with disk.stalled() if state == "device stalled" else contextlib.nullcontext():
        cold = ["--keys", 10_000_000, "--exponent", 0, "--value-size", 1000, "--get-ratio", 0]
        writers = bench(server, *cold, "--connections", WRITERS, "--seconds", SECONDS) if state != "nothing else" else None
        gets = reported(bench(server, *hot, "--get-ratio", 1, "--rate", RATE, "--seconds", SECONDS))
        sets = reported(writers)["ops_per_second"] if writers else 0
    after = counted(server)
    assert gets["errors"] == 0, gets
    counts = {name: after[name] - before[name] for name in COUNTERS}
    return dict(gets["latency"], sets=sets, hits=gets["hit_ratio"], **counts)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--wait", type=int, help="milliseconds of --flash-demotion-wait")
    given = arguments.parse_args()
    rounds = {state: [] for state in STATES}
    for _ in range(given.rounds):
        for state in STATES:
            with contextlib.ExitStack() as stack:
                memory = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
                below = stack.enter_context(filesystem(memory / "below.img", 600, memory / "below"))
                folder = stack.enter_context(filesystem(below / "disk.img", 500, memory / "disk"))
                wait = ["--flash-demotion-wait", given.wait] if given.wait is not None else []
                flags = ["-m", "16", "-t", "2", "--admin", f"127.0.0.1:{free_port()}", "--flash", f"{folder / 'flash'}:384m", *map(str, wait)]
                server = stack.enter_context(Server(EBBTIDE, *flags))
                rounds[state].append(measured(server, Disk(below, folder), state))
    print("| state | sets/s | waits for flash | objects lost | hits on flash | p50 us | p99 us | p99.9 us | max us | hits |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for state, rows in rounds.items():
        def median(name):
            return statistics.median(row[name] for row in rows)
        latency = " | ".join(f"{median(name):.0f}" for name in ("p50_us", "p99_us", "p999_us", "max_us"))
        counts = " | ".join(f"{median(name):.0f}" for name in COUNTERS)
        print(f"| {state} | {median('sets'):.0f} | {counts} | {latency} | {median('hits'):.3f} |")


if __name__ == "__main__":
    main()
