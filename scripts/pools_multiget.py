#!/usr/bin/env python3
"""Measures multigets over pools: 100 keys of 8 of 512 pools, beside a server without pools and prefixes.

    scripts/pools_multiget.py [--rounds 7] [--requests 4000] [--pools 512]

Both servers hold the same keys and values of 100 bytes, so every get hits, and get the same requests in turns over one
connection. Ratios are of a round: requests a second, and processor time of the server per request, kernel included.
"""
import argparse
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from servers import EBBTIDE, Server

USED_POOLS = 8
KEYS_OF_POOL = 2000
KEYS = 100
VALUE = b"v" * 100
PATIENCE_SECONDS = 60
FLAGS = ["-m", "2048", "-t", "1"]


def all_keys(pools):
    step = pools // USED_POOLS
    return [b"tenant%d:%06d" % (pool * step, number) for pool in range(USED_POOLS) for number in range(KEYS_OF_POOL)]


def answer_of(connection, request, length):
    connection.sendall(request)
    received = 0
    while received < length:
        part = connection.recv(min(1 << 18, length - received))
        if not part:
            raise SystemExit("the server closed the connection")
        received += len(part)


def fill(connection, keys):
    for start in range(0, len(keys), 500):
        part = keys[start:start + 500]
        request = b"".join(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(VALUE), VALUE) for key in part)
        answer_of(connection, request, len(b"STORED\r\n") * len(part))


def measure(servers, options, requests, lengths):
    """Per round and server: requests a second, and processor seconds of a request."""
    connections = [server.connection for server in servers]
    rows = []
    for number in range(options.rounds + 1):
        row = []
        for server, connection in zip(servers, connections):
            processor, start = server.processor_seconds(), time.perf_counter()
            for request in range(options.requests):
                answer_of(connection, requests[request % 200], lengths[request % 200])
            seconds = time.perf_counter() - start
            row.append((options.requests / seconds, (server.processor_seconds() - processor) / options.requests))
        # The first round warms up.
        if number:
            rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=4000, help="of a round")
    parser.add_argument("--pools", type=int, default=512)
    options = parser.parse_args()
    keys = all_keys(options.pools)
    generator = random.Random(1)
    lines = [generator.sample(keys, KEYS) for _ in range(200)]
    requests = [b"get " + b" ".join(line) + b"\r\n" for line in lines]
    lengths = [sum(len(b"VALUE %s 0 %d\r\n%s\r\n" % (key, len(VALUE), VALUE)) for key in line) + len(b"END\r\n")
               for line in lines]
    pools = [word for pool in range(options.pools) for word in ("--pool", f"tenant{pool}:prefix=tenant{pool}:")]
    servers = []
    try:
        for flags in (FLAGS, [*FLAGS, *pools]):
            servers.append(Server(EBBTIDE, flags))
            servers[-1].connection.settimeout(PATIENCE_SECONDS)
            fill(servers[-1].connection, keys)
        rows = measure(servers, options, requests, lengths)
    finally:
        for server in servers:
            server.stop()
    rate = [statistics.median(row[side][0] for row in rows) for side in (0, 1)]
    processor = [statistics.median(row[side][1] for row in rows) * 1e6 for side in (0, 1)]
    ratios = [statistics.median(row[1][what] / row[0][what] for row in rows) for what in (0, 1)]
    print(f"| multigets of {KEYS} keys | a second | processor us each |\n|---|---|---|")
    for name, side in ("without pools", 0), (f"{USED_POOLS} of {options.pools} pools", 1):
        print(f"| {name} | {rate[side]:.0f} | {processor[side]:.1f} |")
    print(f"| ratio, median of {options.rounds} rounds | {ratios[0]:.3f} | {ratios[1]:.3f} |")


if __name__ == "__main__":
    main()
