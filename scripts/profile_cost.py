#!/usr/bin/env python3
"""Measures what profiling and capturing cost, on against off in turn, with the ratio of the same round.

    scripts/profile_cost.py [--rounds 9] [--seconds 2] [--only process|network|capture|instructions]

- process: gets and inserts of one thread with a profile of the cache and without (examples/profile_cost.rs);
- network: a server with `--admin`, which profiles, and one without: throughput of a closed loop, then p50 and p99 at
  4,000 to 100,000 requests a second. The load is after Facebook's ETC: keys of 20 bytes, small values, 30 gets to a set;
- instructions: those of one operation by callgrind, with a profile and without (examples/profile_instructions.rs), the
  difference of two counts of operations; only if asked for by --only;
- capture: a server without a watcher, and the same with `ebbtide capture` beside it.

Ratios of throughput under 1 are a loss; the paper's profiler loses 6 % (Dynacache, HotCloud'15, Fig. 3). Needs two cores,
and `target/release/ebbtide`.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "compare"))
from client import bench
from servers import EBBTIDE, Server, free_port

RATES = (4_000, 20_000, 100_000)
OPERATIONS_PER_SECOND = (10_000, 100_000, 300_000)
LOAD = ["--keys", 200_000, "--value-size", 200, "--get-ratio", 0.968, "--popularity", "zipf", "--connections", 8]


def ratio_line(name, ratios):
    print(f"{name}: median of the ratios {statistics.median(ratios):.4f}, from {min(ratios):.4f} to {max(ratios):.4f}\n")


def process(given):
    command = ["cargo", "run", "--release", "--locked", "-q", "-p", "ebbtide", "--example", "profile_cost", "--"]
    subprocess.run([*command, str(given.rounds), str(int(given.seconds * 1000))], cwd=ROOT, check=True)


def counted(kind, profiled, rate, operations):
    program = ROOT / "target/release/examples/profile_instructions"
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={folder}/out", program, kind, profiled, str(rate), str(operations)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return int(re.search(r"^(?:totals|summary): (\d+)", pathlib.Path(folder, "out").read_text(), re.MULTILINE)[1])


def instructions():
    command = ["cargo", "build", "--release", "--locked", "-q", "-p", "ebbtide", "--example", "profile_instructions"]
    subprocess.run(command, cwd=ROOT, check=True)
    print("| operations | a second | off, instructions | on | more |\n|---|---|---|---|---|")
    for kind in ("get", "set", "mixed"):
        for rate in OPERATIONS_PER_SECOND:
            per_operation = {}
            for profiled in ("off", "on"):
                # In the first seconds all keys are sampled: both counts have them.
                few, many = (counted(kind, profiled, rate, seconds * rate) for seconds in (3, 6))
                per_operation[profiled] = (many - few) / (3 * rate)
            off, on = per_operation["off"], per_operation["on"]
            print(f"| {kind} | {rate:,} | {off:.0f} | {on:.0f} | {on / off - 1:+.1%} |", flush=True)


def start(*flags):
    server = Server(EBBTIDE, ["-m", "64", "-t", "1", *flags], cores=[0])
    bench(server, *LOAD, "--prefill", "--seconds", 1, "--pipeline", 64, cores=[1])
    return server


def closed(server, given):
    return bench(server, *LOAD, "--seconds", given.seconds, "--pipeline", 16, cores=[1])["ops_per_second"]


def in_turn(first, second, number):
    return (first, second) if number % 2 == 0 else (second, first)


def network(given):
    servers = {"off": start("--admin", "off"), "on": start("--admin", f"127.0.0.1:{free_port()}")}
    print("| round | off, requests/s | on | ratio |\n|---|---|---|---|")
    ratios = []
    for number in range(given.rounds):
        rates = {name: closed(servers[name], given) for name in in_turn("off", "on", number)}
        ratios.append(rates["on"] / rates["off"])
        print(f"| {number} | {rates['off']:.0f} | {rates['on']:.0f} | {ratios[-1]:.4f} |", flush=True)
    ratio_line("profiling, over the network", ratios)
    print("| requests/s | p50 off, us | p50 on | ratio | p99 off | p99 on | ratio |\n|---|---|---|---|---|---|---|")
    for rate in RATES:
        found = {(name, quantile): [] for name in servers for quantile in ("p50_us", "p99_us")}
        for number in range(given.rounds):
            for name in in_turn("off", "on", number):
                report = bench(servers[name], *LOAD, "--rate", rate, "--seconds", given.seconds, "--pipeline", 16, cores=[1])
                for quantile in ("p50_us", "p99_us"):
                    found[name, quantile].append(report["latency"][quantile])
        cells = []
        for quantile in ("p50_us", "p99_us"):
            off, on = (statistics.median(found[name, quantile]) for name in ("off", "on"))
            cells += [f"{off:.0f}", f"{on:.0f}", f"{on / off:.3f}"]
        print(f"| {rate} | " + " | ".join(cells) + " |", flush=True)
    for server in servers.values():
        server.stop()


def captured(server, given, folder):
    """Requests a second beside a capture."""
    target = f"127.0.0.1:{server.port}"
    # It is ended after the load.
    words = ["capture", target, "--output", f"{folder}/trace.csv", "--overwrite", "--seconds", str(int(given.seconds) + 600)]
    watcher = subprocess.Popen([EBBTIDE, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        # The capture chooses its sample by the load of a second.
        warm = threading.Thread(target=bench, args=(server, *LOAD, "--seconds", 3, "--pipeline", 16), kwargs={"cores": [1]})
        warm.start()
        deadline = time.monotonic() + 60
        while server.stats().get("log_watchers") != "1":
            if time.monotonic() > deadline:
                raise SystemExit("the capture does not watch")
            time.sleep(0.1)
        warm.join()
        return closed(server, given)
    finally:
        watcher.terminate()
        watcher.wait()


def capture(given):
    server = start("--admin", "off")
    print("| round | without a watcher, requests/s | beside a capture | ratio |\n|---|---|---|---|")
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            without = closed(server, given)
            beside = captured(server, given, folder)
            ratios.append(beside / without)
            print(f"| {number} | {without:.0f} | {beside:.0f} | {ratios[-1]:.4f} |", flush=True)
    ratio_line("capture", ratios)
    server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--only", choices=["process", "network", "capture", "instructions"])
    given = parser.parse_args()
    if given.only == "instructions":
        return instructions()
    for part in (process, network, capture):
        if given.only in (None, part.__name__):
            part(given)


if __name__ == "__main__":
    main()
