"""Fig. 10a of Segcache: requests per second by threads, look-aside, with 7 % and with 50 % of sets, and with 1, 8 and
64 different TTLs, in one process. All engines have the same resident memory."""
import time

import results
from large import cells
from network.setup import CORES

ENGINES = ["ebbtide", "segcache", "quick_cache", "moka"]
MIXES = ["50/50", "93/7", "fill"]
TTLS = [1, 8, 64]


def plan(threads, capacities):
    """The cells by weight: as many threads as cores, one thread, then the other counts."""
    alike = max((count for count in threads if count <= len(CORES)), default=min(threads))
    order = list(dict.fromkeys([alike, min(threads), *sorted(threads, reverse=True)]))
    found = []
    for count in order:
        for mix in MIXES:
            for engine in ENGINES:
                found.append({"engine": engine, "mix": mix, "threads": count, "capacity": capacities[engine]})
            if mix != "50/50":
                found.append({"engine": "ebbtide", "mode": "batch", "mix": mix, "threads": count})
        # The other engines have no TTLs here.
        for mix in MIXES if count in order[:2] else []:
            found += [{"engine": engine, "mix": mix, "threads": count, "capacity": capacities[engine], "ttls": ttls}
                      for ttls in TTLS for engine in ["ebbtide", "segcache"]]
    return found


def measure(options, deadline):
    rows = results.Rows("large", "in_process", cells.COLUMNS)
    capacities = cells.calibrated(ENGINES, min(4, max(options.threads)), deadline)
    planned = plan(options.threads, capacities)
    seconds = cells.seconds_for(len(planned), deadline - time.monotonic())
    cells.run(planned, rows, deadline, 3, seconds)
    show(rows, options.threads)


def show(rows, threads):
    """Million requests a second; the ratio to one thread's in brackets."""
    table = []
    for mix, ttls in [(mix, ttls) for mix in MIXES for ttls in [0, *TTLS]]:
        for engine, mode in [("ebbtide", "get"), ("ebbtide", "batch"), *((name, "get") for name in ENGINES[1:])]:
            where = {"mix": mix, "ttls": ttls, "engine": engine, "mode": mode}
            speeds = [rows.median("ops", threads=count, **where) / 1e6 if rows.values("ops", threads=count, **where)
                      else None for count in threads]
            if any(speeds):
                table.append([mix, ttls or "none", engine if mode == "get" else f"{engine} {mode}",
                              *(cell(speed, speeds[0]) for speed in speeds)])
    results.markdown(["mix", "TTLs", "engine", *map(str, threads)], table)


def cell(speed, first):
    if not speed:
        return ""
    return f"{speed:.1f} ({speed / first:.1f})" if first else f"{speed:.1f}"
