"""Caching HTTP proxies by object size, as in Fig. 13 of the CacheLib paper: requests per second and p99 of hits.

    python -m http_proxies [--rounds N] [--seconds S]

The proxy among Ebbtide's examples, nginx's proxy_cache and Apache Traffic Server, one after the other on one core; wrk on
another, with 16 connections. The objects of a size fit the memory of each proxy, and each is requested once before. Then
all are equally popular. Rounds are interleaved: each measures all proxies, in another order.
"""
import argparse
import concurrent.futures
import http.client
import json
import pathlib
import subprocess

import results
from http_proxies import origin, proxies
from network.setup import CLIENT_CORE, SERVER_CORE, in_turn
from servers import pinned, program

SIZES_KIB = [1, 4, 16, 64, 256]
DATA_MIB = 128
MAX_OBJECTS = 20_000
CONNECTIONS = 16
SCRIPT = pathlib.Path(__file__).with_name("requests.lua")


def request_all(port, paths):
    """Requests each object once, and reads it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    for path in paths:
        connection.request("GET", path)
        response = connection.getresponse()
        length = len(response.read())
        if response.status != 200 or length != int(path.split("/")[1]):
            raise SystemExit(f"{path}: {response.status}, {length} bytes")
    connection.close()


def fill(port, size, objects):
    paths = [f"/{size}/{number}" for number in range(objects)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda first: request_all(port, paths[first::8]), range(8)))


def load(port, size, objects, seconds):
    """The report of `requests.lua`."""
    command = [*pinned([CLIENT_CORE]), program("wrk"), "-t", 1, "-c", CONNECTIONS, "-d", f"{seconds}s", "-s", SCRIPT,
               f"http://127.0.0.1:{port}", "--", size, objects]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    report = json.loads(done.stdout.splitlines()[-1])
    if report["errors"]:
        raise SystemExit(f"{report['errors']} errors: {done.stdout}")
    return report


def measure(rounds, seconds, sizes):
    columns = ["round", "server", "size", "requests_per_second", "p50_us", "p99_us", "misses"]
    rows = results.Rows("http", "proxies", columns)
    for number in range(rounds):
        for size_kib in sizes:
            size, objects = size_kib << 10, min(MAX_OBJECTS, (DATA_MIB << 10) // size_kib)
            for name in in_turn(proxies.ALL, number):
                with origin.Origin() as source, proxies.running(name, source, SERVER_CORE) as port:
                    fill(port, size, objects)
                    before = source.requests
                    report = load(port, size, objects, seconds)
                    rows.add(round=number, server=name, size=f"{size_kib} KiB", misses=source.requests - before,
                             requests_per_second=report["requests"] / report["seconds"], p50_us=report["p50_us"],
                             p99_us=report["p99_us"])
    return rows


def show(rows):
    table = []
    for size in rows.distinct("size"):
        ours = rows.median("requests_per_second", server="ebbtide", size=size)
        for server in proxies.ALL:
            where = {"server": server, "size": size}
            theirs = rows.median("requests_per_second", **where)
            table.append([size, server, rows.spread("requests_per_second", **where), f"{ours / theirs:.2f}",
                          rows.spread("p50_us", **where), rows.spread("p99_us", **where),
                          f"{rows.median('misses', **where):.0f}"])
    results.markdown(["object", "proxy", "requests/s (min to max)", "ebbtide / proxy", "p50 us", "p99 us", "misses"], table)
    folder = rows.path.parent
    results.bars(rows, folder / "requests.svg", "requests_per_second", "size", "requests/s", logarithmic=True)
    results.bars(rows, folder / "p99.svg", "p99_us", "size", "p99 in us", logarithmic=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=3, help="of each measurement")
    parser.add_argument("--sizes", type=lambda text: [int(size) for size in text.split(",")], default=SIZES_KIB,
                        help="of objects, in KiB")
    arguments = parser.parse_args()
    show(measure(arguments.rounds, arguments.seconds, arguments.sizes))


if __name__ == "__main__":
    main()
