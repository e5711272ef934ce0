#!/usr/bin/env python3
"""Measures what observing costs the workers.

    scripts/observe_cost.py instructions [OTHER]   instructions of the worker per request of a fixed stream, by callgrind
    scripts/observe_cost.py network [OTHER]        requests per second and processor time per request, interleaved

Compares the server with and without `--admin`, and both with OTHER if that is given: another build of it, without the
admin HTTP. Instructions are those of user code only. Under valgrind requests come so much slower that a large part of the
reads is sampled, where in earnest a worker samples one in 4 ms: "with admin" less "without admin", times the pipeline, is
about what one sample takes. Processor time is of the worker, kernel included; ratios are of the same round, as neighbours
come and go.
"""
import argparse
import pathlib
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from client import bench
from servers import EBBTIDE, Server, free_port

DEPTHS = (1, 16, 64)
KEYS = 1000


def variants(other):
    found = [("without admin", EBBTIDE, ["--admin", "off"]), ("with admin", EBBTIDE, None)]
    return ([("other", other, [])] if other else []) + found


def flags_of(given):
    return given if given is not None else ["--admin", f"127.0.0.1:{free_port()}"]


def stream(depth, requests):
    """Batches of one write each: nine gets to a set."""
    batch = []
    for number in range(requests):
        key = b"key-%016d" % (number * 7919 % KEYS)
        batch.append(b"set %s 0 0 100\r\n%s\r\n" % (key, b"v" * 100) if number % 10 == 9 else b"get %s\r\n" % key)
        if len(batch) == depth:
            yield b"".join(batch)
            batch.clear()


def drive(connection, depth, requests):
    for batch in stream(depth, requests):
        connection.sendall(batch)
        answer = b""
        while answer.count(b"END\r\n") + answer.count(b"STORED\r\n") < depth:
            answer += connection.recv(1 << 16)


def counted(program, flags, depth, requests):
    """Instructions of the one worker of a server that answers this number of requests."""
    with tempfile.TemporaryDirectory() as folder:
        port = free_port()
        command = ["valgrind", "--tool=callgrind", "--separate-threads=yes", f"--callgrind-out-file={folder}/out", program, "-m", "64", "-t", "1",
                   "-p", str(port), "-l", "127.0.0.1", *flags]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                connection = socket.create_connection(("127.0.0.1", port))
                break
            except OSError:
                time.sleep(0.1)
        drive(connection, depth, requests)
        connection.close()
        process.terminate()
        process.wait()
        totals = {path.name: re.search(r"^totals: (\d+)", path.read_text(), re.MULTILINE)
                  for path in pathlib.Path(folder).iterdir()}
    # The first thread starts the others and waits; of these none but the worker has so much to do.
    return max(int(total.group(1)) for name, total in totals.items() if total and not name.endswith("-01"))


def instructions(arguments):
    names = [name for name, _, _ in variants(arguments.other)]
    print("| pipeline | " + " | ".join(f"{name}, instructions per request" for name in names) + " |")
    print("|---" * (len(names) + 1) + "|")
    few = arguments.requests // 10
    for depth in DEPTHS:
        cells = []
        for _, program, flags in variants(arguments.other):
            # What starting and stopping take cancels out.
            more = counted(program, flags_of(flags), depth, few + arguments.requests)
            less = counted(program, flags_of(flags), depth, few)
            cells.append((more - less) / arguments.requests)
        print(f"| {depth} | " + " | ".join(f"{cell:.0f}" for cell in cells) + " |", flush=True)


def processor_seconds(server):
    """What the one worker has run, by the scheduler's own count."""
    for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "worker-0":
            return int((task / "schedstat").read_text().split()[0]) / 1e9
    raise SystemExit("there is no worker")


def network(arguments):
    found = variants(arguments.other)
    rates = {(name, depth): [] for name, _, _ in found for depth in DEPTHS}
    times = {(name, depth): [] for name, _, _ in found for depth in DEPTHS}
    common = ["--keys", 100_000, "--value-size", 100, "--get-ratio", 0.9, "--connections", 8]
    servers = {name: Server(program, ["-m", "256", "-t", "1", *flags_of(flags)], cores=[0]) for name, program, flags in found}
    for server in servers.values():
        bench(server, *common, "--prefill", "--seconds", 1, "--pipeline", 64, cores=[1])
    for round_number in range(arguments.rounds):
        for depth in DEPTHS:
            order = list(servers) if round_number % 2 else list(reversed(servers))
            for name in order:
                before = processor_seconds(servers[name])
                result = bench(servers[name], *common, "--requests", arguments.requests * depth, "--pipeline", depth, cores=[1])
                used = processor_seconds(servers[name]) - before
                rates[name, depth].append(result["ops_per_second"])
                times[name, depth].append(used / (arguments.requests * depth))
    for server in servers.values():
        server.stop()
    first = found[0][0]
    print(f"| pipeline | server | requests per second, median | of {first}'s | processor us per request, median | of {first}'s |")
    print("|---|---|---|---|---|---|")
    ratio = lambda values, name, depth: statistics.median(a / b for a, b in zip(values[name, depth], values[first, depth]))
    for depth in DEPTHS:
        for name, _, _ in found:
            print(f"| {depth} | {name} | {statistics.median(rates[name, depth]):.0f} | {ratio(rates, name, depth):.3f} "
                  f"| {statistics.median(times[name, depth]) * 1e6:.2f} | {ratio(times, name, depth):.3f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["instructions", "network"])
    parser.add_argument("other", nargs="?", help="another build to compare with")
    parser.add_argument("--rounds", type=int, default=7, help="repetitions of the network runs")
    parser.add_argument("--requests", type=int, default=100_000, help="requests of a run (by the depth in network runs)")
    arguments = parser.parse_args()
    {"instructions": instructions, "network": network}[arguments.what](arguments)


if __name__ == "__main__":
    main()
