"""Ebbtide, memcached and Redis over loopback: each is started, pinned to a core, measured and stopped.

    python -m network [throughput|latency|threads|hits|flash|hops|versions ...] [--rounds N] [--seconds S]

Prints Markdown; every round goes to compare/results/network/*.csv, plots beside it. 1 M keys of 20 bytes, values of 100
bytes, nine gets to a set, 8 connections, Zipf 0.99, the client on a core of its own. Rounds are interleaved: each measures
all servers, in another order. Ratios carry over to other machines, absolute numbers do not.
"""
import argparse

from network import flash, hits, hops, latency, threads, throughput, versions

PARTS = {"throughput": throughput, "latency": latency, "threads": threads, "hits": hits, "flash": flash, "hops": hops,
         "versions": versions}
# Run when they are named: the first fills flash at the pace of a disk, the second needs twemproxy, the third other builds.
NAMED = ["flash", "hops", "versions"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=[part for part in PARTS if part not in NAMED],
                        help=f"of {', '.join(PARTS)}; all but {', '.join(NAMED)} by default")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2, help="of each measurement")
    arguments = parser.parse_args()
    for part in arguments.parts:
        if part not in PARTS:
            parser.error(f"{part}: the parts are {', '.join(PARTS)}")
    for part in arguments.parts:
        print(f"## {part}\n", flush=True)
        PARTS[part].measure(arguments.rounds, arguments.seconds)


if __name__ == "__main__":
    main()
