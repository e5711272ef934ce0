"""Multigets of 100 keys that are all in memory: keys per second and per core, in process and from the server, beside
memcached. (The post on extstore: 18 million keys a second with 32 threads.)"""
import json
import os
import subprocess
import time

import client
import results
import servers
from network.setup import CORES, cores_beside

KEYS, VALUE_BYTES, MEMORY_MIB, BATCH = 1_000_000, 100, 512, 100
COLUMNS = ["system", "threads", "keys_per_second", "per_core", "hit_ratio", "us"]
LOAD = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--get-ratio", 1, "--batch", BATCH]


def measure(options, deadline):
    rows = results.Rows("large", "multigets", COLUMNS)
    half = max(len(CORES) // 2, 1)
    # A core for every thread of the server and more of the client, which must copy the values, too.
    counts = sorted({max(half // 2, 1), half}, reverse=True)
    runs = 2 + 2 * len(counts)
    seconds = min(max((deadline - time.monotonic()) / runs - 2.5, 0.5), 3.0)
    for threads in sorted({1, len(CORES)}, reverse=True):
        in_process(rows, threads, seconds)
    for threads in counts:
        for name in ["ebbtide", "memcached"]:
            if time.monotonic() + seconds > deadline:
                print(f"time is over: {name} with {threads} threads is left out")
                continue
            over_loopback(rows, name, threads, seconds)


def in_process(rows, threads, seconds):
    command = [os.environ["EBBTIDE_BINARY"], "bench", "--json", "--threads", threads, "--memory", f"{MEMORY_MIB}m",
               "--prefill", *LOAD, "--seconds", round(seconds, 2)]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)
    if done.returncode:
        print(done.stderr)
        return
    report = json.loads(done.stdout)
    speed = report["cache_ops_per_second"]
    add(rows, "ebbtide in process", threads, speed, speed / threads, report["hit_ratio"], threads / speed * 1e6)


def over_loopback(rows, name, threads, seconds):
    cores = CORES[:threads]
    beside = cores_beside(cores)
    load = ["--connections", max(4 * threads, len(beside)), "--threads", len(beside)]
    with servers.running(servers.ALL[name], MEMORY_MIB, threads=threads, cores=cores) as server:
        client.fill(server, KEYS, VALUE_BYTES, *load, cores=beside)
        report = client.bench(server, *LOAD, "--pipeline", 2, *load, "--seconds", round(seconds, 2), cores=beside)
    # Per core that the server really kept busy: the client may be the slower one.
    per_core = 1e6 / report["server_us_per_op"]
    add(rows, f"{name} over loopback", threads, report["ops_per_second"], per_core, report["hit_ratio"],
        report["server_us_per_op"])


def add(rows, system, threads, speed, per_core, hit_ratio, us):
    rows.add(system=system, threads=threads, keys_per_second=speed, per_core=per_core, hit_ratio=hit_ratio, us=us)
    print(f"{system}, {threads} threads: {speed / 1e6:.2f} M keys/s, {per_core / 1e6:.2f} M a busy core, "
          f"hits {hit_ratio:.4f}", flush=True)
