"""Requests a second of one thread, the Segcache paper's Fig. 9: engines in turns, each cell in a process of its own."""
import os

import results
from storage.workloads import ENGINES, prepare, replay

# Memory as a share of the footprint, near the one at which Ebbtide has the production miss ratio.
SHARES = {"c": 0.15, "n": 0.36, "mix": 0.025, "u1": 0.147, "u2": 0.28}
COLUMNS = ["workload", "server", "round", "memory", "requests_per_second", "requests_per_processor_second",
           "miss_ratio", "load"]
BASELINE = "memcached-crawler"


def measure(names, seconds, rounds, scale):
    rows = results.Rows("storage", "speed", COLUMNS)
    workloads = {name: prepare(name) for name in names}
    copies = {name: max(1, round(scale / workload.footprint)) for name, workload in workloads.items()}
    for number in range(rounds):
        for name, workload in workloads.items():
            memory = int(workload.footprint * SHARES[name])
            for engine in ENGINES:
                load = os.getloadavg()[0]
                [report] = replay(workload, engine, [memory], "--copies", copies[name], "--seconds", seconds / rounds)
                rows.add(workload=name, server=ENGINES[engine], round=number, memory=memory * copies[name],
                         requests_per_second=report["requests_per_second"],
                         requests_per_processor_second=report["requests_per_processor_second"],
                         miss_ratio=report["miss_ratio"], load=round(load, 2))
    show(rows, workloads, copies)
    results.bars(rows, rows.path.with_suffix(".svg"), "requests_per_processor_second", "workload",
                 "million requests/s of one thread", scale=1e-6)


def show(rows, workloads, copies):
    names = rows.distinct("workload")
    loads = rows.values("load")
    print(f"Load average before a cell: {min(loads)} to {max(loads)}.\n")
    facts = [[name, f"{workloads[name].footprint * copies[name] / 1e6:.0f} MB", copies[name],
              f"{rows.values('memory', workload=name)[0] / 1e6:.0f} MB"] for name in names]
    results.markdown(["workload", "footprint", "copies", "memory"], facts)
    for column, label in (("requests_per_processor_second", "M requests/s of processor time (least to most)"),
                          ("requests_per_second", "M requests/s by the wall clock (least to most)")):
        results.markdown([label, *names], [[server, *(rows.spread(column, "{:.2f}", 1e-6, server=server, workload=name)
                                                      for name in names)] for server in rows.distinct("server")])
    results.markdown(["misses per get", *names], [[server, *(
        f"{rows.median('miss_ratio', server=server, workload=name):.4f}" for name in names)]
        for server in rows.distinct("server")])
    for ours in ("ebbtide", "ebbtide-merge"):
        results.markdown([f"{ENGINES[ours]} over", *names], [[server, *(
            f"{ratio(rows, ENGINES[ours], server, name):.2f}" for name in names)]
            for server in rows.distinct("server") if server != ENGINES[ours]])


def ratio(rows, ours, theirs, name):
    """The median over the rounds of the ratio within a round."""
    column = "requests_per_processor_second"
    pairs = zip(rows.values(column, server=ours, workload=name), rows.values(column, server=theirs, workload=name))
    ratios = sorted(one / other for one, other in pairs)
    middle = len(ratios) // 2
    return ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
