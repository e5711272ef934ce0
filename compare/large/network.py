"""The server beside memcached over loopback, by threads: look-aside, 7 % and 50 % of sets, a full cache. The client has
the cores that the server leaves; where there is none it shares the server's, and the numbers are of the whole machine."""
import time

import client
import results
import servers
from network.setup import CORES, cores_beside, in_turn

MEMORY_MIB = 128
# Keys and values have twice the bytes of the memory.
KEYS, VALUE_BYTES = 1_000_000, 230
SERVERS = ["ebbtide", "memcached"]
RATIOS = {"50/50": 0.5, "93/7": 0.93, "fill": 1.0}
COLUMNS = ["server", "mix", "threads", "client_threads", "ops", "hit_ratio", "us", "busy", "p50_us", "p999_us"]
# A server with one thread takes this long for a fill.
FILL_SECONDS = 2.5


def measure(options, deadline):
    rows = results.Rows("large", "network", COLUMNS)
    counts = [count for count in options.threads if count <= len(CORES)]
    runs = len(counts) * len(SERVERS)
    seconds = min(max(((deadline - time.monotonic()) / runs - FILL_SECONDS) / (len(RATIOS) + 1) - 0.2, 0.3), 2.0)
    for number, threads in enumerate(reversed(counts)):
        for name in in_turn(SERVERS, number):
            if time.monotonic() + FILL_SECONDS + (len(RATIOS) + 1) * seconds > deadline:
                print(f"time is over: {name} with {threads} threads is left out")
                continue
            one_server(rows, name, threads, seconds)
    show(rows)


def one_server(rows, name, threads, seconds):
    cores = CORES[:threads]
    beside = cores_beside(cores)
    client_threads = min(len(beside), max(4, threads))
    connections = max(8 * threads, client_threads)
    load = ["--connections", connections, "--threads", client_threads]
    with servers.running(servers.ALL[name], MEMORY_MIB, threads=threads, cores=cores) as server:
        client.fill(server, KEYS // 2, VALUE_BYTES, *load, cores=beside)
        run = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--exponent", 1.0, "--fill", "--pipeline", 16, *load,
               "--seconds", round(seconds, 2)]
        # Until the cache holds what it will hold.
        client.bench(server, *run, "--get-ratio", 1, cores=beside)
        for mix, ratio in RATIOS.items():
            report = client.bench(server, *run, "--get-ratio", ratio, cores=beside)
            row = {"server": name, "mix": mix, "threads": threads, "client_threads": client_threads,
                   "ops": report["ops_per_second"], "hit_ratio": report["hit_ratio"],
                   "us": report["server_us_per_op"], "busy": report["server_busy"],
                   "p50_us": report["latency"]["p50_us"], "p999_us": report["latency"]["p999_us"]}
            rows.add(**row)
            print(f"{mix:>5} {threads:>3} threads {name:>10}: {row['ops'] / 1e6:.2f} M/s, hits {row['hit_ratio']:.3f}, "
                  f"server {row['us']:.2f} us per request, {row['busy']:.1f} cores busy", flush=True)


def show(rows):
    table = [[mix, server, threads, rows.spread("ops", "{:.2f}", 1e-6, **where).split()[0],
              rows.spread("us", "{:.2f}", **where).split()[0], rows.spread("busy", "{:.1f}", **where).split()[0]]
             for mix in RATIOS for server in SERVERS for threads in sorted(rows.distinct("threads"))
             for where in [{"mix": mix, "server": server, "threads": threads}] if rows.values("ops", **where)]
    results.markdown(["mix", "server", "threads", "M/s", "server us per request", "cores busy"], table)
