"""One measurement of a cache in process by `ebbtide-throughput`, and the capacities that make their memory equal."""
import os
import subprocess
import time

# The shape of all cells: half of the bytes fit, so that look-aside has misses and every cache is full.
KEYS, VALUE_BYTES, MEMORY_BYTES = 1_000_000, 230, 128 << 20
# What all of a measurement takes besides its seconds: drawing requests, filling.
OVERHEAD_SECONDS = 1.0
# More than any engine does in a thread: the time ends a measurement, not the requests.
MAX_REQUESTS_PER_SECOND = 6_000_000
CALIBRATIONS = 3

COLUMNS = ["round", "engine", "mode", "mix", "ttls", "sharing", "threads", "ops", "hit_ratio", "rss_mib", "cpu_ns"]


BEFORE = "ebbtide before"


def measure(engine, mix, threads, seconds, capacity=MEMORY_BYTES, mode="get", ttls=0, sharing="shared"):
    """One row without its round, or None if the program failed, which is printed. `BEFORE` is the engine of an earlier
    build."""
    program, name = ("THROUGHPUT_BEFORE_BINARY", "ebbtide") if engine == BEFORE else ("THROUGHPUT_BINARY", engine)
    command = [os.environ[program], "measure", "--engine", name, "--mode", mode, "--mix", mix,
               "--keys", KEYS, "--value-bytes", VALUE_BYTES, "--memory-bytes", MEMORY_BYTES,
               "--capacity-bytes", int(capacity), "--threads", threads, "--sharing", sharing, "--ttls", ttls,
               "--seconds", f"{seconds:.2f}", "--requests", max(int(seconds * MAX_REQUESTS_PER_SECOND), 1000)]
    try:
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60 + 4 * seconds)
    except subprocess.TimeoutExpired:
        print(f"{engine} {mix} {threads}: took more than a minute, left out", flush=True)
        return None
    words = done.stdout.split()
    if done.returncode or len(words) != 5:
        print(f"{engine} {mix} {threads}: {done.stderr.strip() or done.returncode}", flush=True)
        return None
    ops, hit_ratio, rss, cpu_ns, failed = map(float, words)
    if failed:
        print(f"{engine} {mix} {threads}: {failed:.0f} sets were refused", flush=True)
    return {"engine": engine, "mode": mode, "mix": mix, "ttls": ttls, "sharing": sharing, "threads": threads,
            "ops": ops, "hit_ratio": hit_ratio, "rss_mib": rss / 2**20, "cpu_ns": cpu_ns}


def calibrated(engines, threads, deadline):
    """A capacity for each engine with which the full cache is resident with MEMORY_BYTES. Ebbtide counts all of its
    memory, so that its capacity is that."""
    capacities = {}
    for engine in engines:
        capacity = MEMORY_BYTES
        for _ in range(CALIBRATIONS if engine != "ebbtide" else 0):
            row = measure(engine, "fill", threads, 0.1, capacity)
            if row is None or time.monotonic() > deadline:
                break
            capacity *= MEMORY_BYTES / 2**20 / row["rss_mib"]
        capacities[engine] = capacity
        print(f"{engine}: capacity {capacity / 2**20:.0f} MiB", flush=True)
    return capacities


def run(cells, rows, deadline, rounds, seconds):
    """Measures the cells round after round until the time is over. A cell is a dictionary of `measure`'s arguments."""
    for number in range(rounds):
        for place, cell in enumerate(cells):
            if time.monotonic() + seconds + OVERHEAD_SECONDS > deadline:
                print(f"time is over: {len(cells) - place} cells of round {number} and later rounds are left out")
                return
            row = measure(seconds=seconds, **cell)
            if row:
                rows.add(round=number, **row)
                print(line(row), flush=True)


def line(row):
    ttls = f" {row['ttls']} TTLs" if row["ttls"] else ""
    return (f"{row['mix']:>5} {row['threads']:>3} threads {row['engine']:>11} {row['mode']:<5} {row['sharing']}{ttls}: "
            f"{row['ops'] / 1e6:.2f} M/s, hits {row['hit_ratio']:.3f}, {row['rss_mib']:.0f} MiB")


def seconds_for(cells, available):
    """How long each of this number of cells may be measured, warm-up apart, so that all of them are."""
    return min(max((available / cells - OVERHEAD_SECONDS) / 1.5, 0.2), 2.0)
