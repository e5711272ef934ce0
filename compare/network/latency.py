"""Latencies in an open loop: requests are due by the clock, and latencies count from then.

Each server gets half of what it does at pipeline 1, and half of what the slowest does. A request never waits for a
connection (16 may be in flight on each of 8). The client spins on a core of its own.

On a machine with other work the percentiles are those of the scheduler. `chrt --rr 1` before the command keeps the others
away, as long as a measurement takes less than the 0.95 s of each second that the kernel leaves to such processes: hence the
pauses, and `--seconds 0.4`.
"""
import statistics
import time

import client
import results
import servers
from network.setup import CLIENT_CORE, LOAD, filled, in_turn

ARRIVALS = {"poisson": ["--arrivals", "poisson"], "bursts of 32": ["--arrivals", "bursty", "--burst", 32]}
PERCENTILES = ["p50_us", "p99_us", "p999_us"]


PAUSE_SECONDS = 1.2


def calm_bench(*arguments):
    """A run before which nothing happens for a while."""
    time.sleep(PAUSE_SECONDS)
    return client.bench(*arguments, cores=[CLIENT_CORE])


def capacity(name, seconds):
    """Requests per second at pipeline 1, closed loop."""
    with filled(name) as server:
        runs = [calm_bench(server, *LOAD, "--seconds", seconds) for _ in range(3)]
        return statistics.median(run["ops_per_second"] for run in runs)


def measure(rounds, seconds):
    rows = results.Rows("network", "latency", ["round", "server", "load", "arrivals", "case", "rate", "unsent",
                                               *PERCENTILES, "delay_p99_us"])
    capacities = {name: capacity(name, min(seconds, 1)) for name in servers.ALL}
    rates = {
        "half of its own": {name: most // 2 for name, most in capacities.items()},
        "half of the slowest's": dict.fromkeys(capacities, min(capacities.values()) // 2),
    }
    for number in range(rounds):
        for name in in_turn(servers.ALL, number):
            with filled(name) as server:
                for load, rate in rates.items():
                    for arrivals, flags in ARRIVALS.items():
                        report = calm_bench(server, *LOAD, *flags, "--rate", rate[name], "--pipeline", 16,
                                            "--seconds", seconds)
                        rows.add(round=number, server=name, load=load, arrivals=arrivals, rate=rate[name],
                                 case=f"{arrivals}\n{load}", unsent=report["unsent"],
                                 delay_p99_us=report["delay"]["p99_us"],
                                 **{name: report["latency"][name] for name in PERCENTILES})
    show(rows)
    return rows


def show(rows):
    table = []
    for load in rows.distinct("load"):
        for arrivals in rows.distinct("arrivals"):
            for server in servers.ALL:
                where = {"server": server, "load": load, "arrivals": arrivals}
                cells = [rows.spread(column, **where) for column in [*PERCENTILES, "delay_p99_us"]]
                table.append([load, arrivals, server, f"{rows.median('rate', **where) / 1000:.0f}", *cells])
    results.markdown(["load", "arrivals", "server", "requests/s in thousands", "p50 us (min to max)", "p99 us", "p99.9 us",
                      "of it the client's delay, p99 us"], table)
    for column, label in [("p99_us", "p99 in us"), ("p999_us", "p99.9 in us")]:
        results.bars(rows, rows.path.parent / f"latency-{column.removesuffix('_us')}.svg", column, "case", label,
                     logarithmic=True)
