"""Builds of Ebbtide side by side: what a change costs over the network.

The builds come from EBBTIDE_VERSIONS, `name=path` separated by commas, the first one the base of the ratios. The present
build takes part twice, as `now` and `again`: the ratio of the two is the noise. One server thread on a core of its own.
"""
import math
import os
import statistics

import client
import results
import servers
from network.setup import CLIENT_CORE, CONNECTIONS, KEYS, SERVER_CORE, VALUE_BYTES, in_turn

CASES = {
    "gets, pipeline 1": ["--get-ratio", 1, "--pipeline", 1],
    "gets, pipeline 64": ["--get-ratio", 1, "--pipeline", 64],
    "nine gets to a set, pipeline 64": ["--get-ratio", 0.9, "--pipeline", 64],
    "sets, pipeline 64": ["--get-ratio", 0, "--pipeline", 64],
    "multiget 100": ["--get-ratio", 1, "--batch", 100],
}
LOAD = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--connections", CONNECTIONS]
# All keys fit in the first; the second evicts.
MEMORY_MIB = [1024, 64]


def builds():
    listed = os.environ.get("EBBTIDE_VERSIONS", "")
    named = dict(entry.split("=", 1) for entry in listed.split(",") if "=" in entry)
    if not named:
        raise SystemExit("EBBTIDE_VERSIONS names no build: EBBTIDE_VERSIONS=before=/path/of/ebbtide[,name=path ...]")
    return {**named, "now": servers.EBBTIDE, "again": servers.EBBTIDE}


def measure(rounds, seconds):
    named = builds()
    rows = results.Rows("network", "versions", ["round", "server", "memory", "case", "ops", "us"])
    for number in range(rounds):
        for name in in_turn(named, number):
            for memory in MEMORY_MIB:
                flags = ["-m", memory, "-t", 1]
                with servers.running(servers.Server, named[name], flags, [SERVER_CORE]) as server:
                    client.fill(server, KEYS, VALUE_BYTES, cores=[CLIENT_CORE])
                    for case, options in CASES.items():
                        report = client.bench(server, *LOAD, *options, "--seconds", seconds, cores=[CLIENT_CORE])
                        rows.add(round=number, server=name, memory=memory, case=case, ops=report["ops_per_second"],
                                 us=report["server_us_per_op"])
    show(rows, list(named))


def show(rows, names):
    base, others = names[0], names[1:]
    table, ratios = [], {name: [] for name in others}
    for memory in rows.distinct("memory"):
        for case in rows.distinct("case"):
            cells = []
            for name in others:
                by_round = [rows.median("us", server=base, memory=memory, case=case, round=number)
                            / rows.median("us", server=name, memory=memory, case=case, round=number)
                            for number in rows.distinct("round")]
                ratios[name].append(statistics.median(by_round))
                cells.append(f"{statistics.median(by_round):.3f} [{min(by_round):.3f}, {max(by_round):.3f}]")
            table.append([f"{case}, {memory} MiB", rows.spread("us", "{:.2f}", server=base, memory=memory, case=case), *cells])
    mean = [f"{math.exp(sum(map(math.log, ratios[name])) / len(ratios[name])):.3f}" for name in others]
    table.append(["geometric mean", "", *mean])
    results.markdown(["load", f"{base}: server us per op", *(f"speed of {name} over {base}'s" for name in others)], table)
