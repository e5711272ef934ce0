"""Half of the requests are sets, as many threads as cores, 1 M keys: what writers share. Ebbtide beside quick_cache with
the same memory, with eight TTLs, with the keys divided among its threads, and with a cache for each thread, which
shares nothing; an earlier build in turns with it, if there is one."""
import json
import os
import subprocess
import time

import results
from large import cells
from network.setup import CORES

ROUNDS = 5


def measure(options, deadline):
    rows = results.Rows("large", "half_sets", cells.COLUMNS)
    threads = len(CORES)
    capacities = cells.calibrated(["ebbtide", "quick_cache"], min(4, threads), deadline)
    both = [{"engine": engine, "mix": "50/50", "threads": threads, "capacity": capacities[engine]}
            for engine in capacities]
    planned = both + [{**both[0], "ttls": 8}, *({**both[0], "sharing": sharing} for sharing in ["disjoint", "private"])]
    if "THROUGHPUT_BEFORE_BINARY" in os.environ:
        planned += [{**cell, "engine": cells.BEFORE} for cell in planned if cell["engine"] == "ebbtide"]
    # Latencies come last and take two runs.
    available = (deadline - time.monotonic()) * 0.8
    seconds = min(cells.seconds_for(len(planned) * ROUNDS, available), 1.0)
    cells.run(planned, rows, time.monotonic() + available, ROUNDS, seconds)
    table = []
    for cell in planned:
        where = {name: cell.get(name, other) for name, other in [("engine", ""), ("ttls", 0), ("sharing", "shared")]}
        if rows.values("ops", **where):
            table.append([where["engine"], where["ttls"] or 1, where["sharing"],
                          rows.spread("ops", "{:.2f}", 1e-6, **where), rows.spread("hit_ratio", "{:.3f}", **where),
                          rows.spread("cpu_ns", **where)])
    results.markdown(["engine", "TTLs", "sharing", "M/s (min to max)", "hit ratio", "processor ns per request"], table)
    for count in sorted({1, threads}):
        latency(count, min(1.0, max(deadline - time.monotonic(), 1) / 3))


def latency(threads, seconds):
    """Of sets in a full cache, in process, as fast as the threads go."""
    command = [os.environ["EBBTIDE_BINARY"], "bench", "--json", "--threads", threads, "--memory", "128m", "--keys",
               cells.KEYS, "--value-size", cells.VALUE_BYTES, "--get-ratio", 0.5, "--fill", "--prefill", "--seconds",
               seconds]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    if done.returncode:
        print(done.stderr)
        return
    sets = json.loads(done.stdout)["set_latency"]
    print(f"set latency, {threads} threads: p50 {sets['p50_us']:.1f} us, p99 {sets['p99_us']:.1f}, "
          f"p99.9 {sets['p999_us']:.1f}, max {sets['max_us']:.0f}", flush=True)
