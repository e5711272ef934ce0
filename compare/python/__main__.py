"""`get` and `set` of a Python program, one thread: the package beside cachetools, diskcache, and pymemcache with a
memcached over loopback.

    python -m python [--rounds 5] [--seconds 1]

All keys are present, and all fit. In each round every system runs once, in turn, and the ratios are of the same round.
It does not show evictions, threads, or values of other lengths. cachetools is not thread-safe: its documentation
advises a lock, without which it is measured, too. A set of pymemcache waits for the answer, as those of the others do.
"""
import argparse
import pathlib
import random
import statistics
import tempfile
import threading
import time

import results
import servers

KEYS, VALUE_BYTES, MEMORY_MIB, TTL_SECONDS = 20_000, 100, 256, 3600
# Calls between two looks at the clock.
CHUNK = 1000


class Ebbtide:
    name = "ebbtide"

    def __init__(self, _):
        import ebbtide

        cache = ebbtide.Cache(f"{MEMORY_MIB}m", default_ttl=TTL_SECONDS)
        self.get, self.set, self.stop = cache.get, cache.set, cache.close


class Cachetools:
    name = "cachetools.TTLCache"

    def __init__(self, _):
        import cachetools

        cache = cachetools.TTLCache(maxsize=KEYS, ttl=TTL_SECONDS)
        self.get, self.set = cache.get, cache.__setitem__

    def stop(self):
        pass


class LockedCachetools(Cachetools):
    name = "cachetools.TTLCache, a lock"

    def __init__(self, folder):
        super().__init__(folder)
        get, set_, lock = self.get, self.set, threading.Lock()

        def locked_get(key):
            with lock:
                return get(key)

        def locked_set(key, value):
            with lock:
                set_(key, value)

        self.get, self.set = locked_get, locked_set


class Diskcache:
    name = "diskcache.Cache"

    def __init__(self, folder):
        import diskcache

        cache = diskcache.Cache(str(folder), size_limit=MEMORY_MIB << 20)
        self.get, self.stop = cache.get, cache.close
        self.set = lambda key, value: cache.set(key, value, expire=TTL_SECONDS)


class Pymemcache:
    name = "pymemcache, memcached"

    def __init__(self, _):
        from pymemcache.client.base import Client

        self.server = servers.memcached(MEMORY_MIB, threads=1)
        client = Client(("127.0.0.1", self.server.port), no_delay=True, default_noreply=False)
        self.get = client.get
        self.set = lambda key, value: client.set(key, value, expire=TTL_SECONDS)

    def stop(self):
        self.server.stop()


SYSTEMS = (Ebbtide, Cachetools, LockedCachetools, Diskcache, Pymemcache)


def rate(call, arguments, seconds):
    """Calls per second."""
    calls, start = 0, time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        at = calls % len(arguments)
        for argument in arguments[at : at + CHUNK]:
            call(*argument)
        calls += CHUNK
    return calls / passed


def run(rows, systems, seconds, round_number, seed):
    keys = [f"user:{number:08}" for number in range(KEYS)]
    random.Random(seed + round_number).shuffle(keys)
    value = random.Random(seed).randbytes(VALUE_BYTES)
    gets, sets = [(key,) for key in keys], [(key, value) for key in keys]
    # The order changes from round to round.
    for system in systems[round_number % len(systems) :] + systems[: round_number % len(systems)]:
        found = sum(system.get(key) == value for key in keys[:CHUNK])
        if found != CHUNK:
            raise SystemExit(f"{system.name}: {found} of {CHUNK} keys are present")
        for operation, call, arguments in (("get", system.get, gets), ("set", system.set, sets)):
            rows.add(round=round_number, system=system.name, operation=operation,
                     per_second=rate(call, arguments, seconds))


def ratios(rows, system, operation):
    """What the package does in the time in which the other does one, by round."""
    ours = rows.values("per_second", system=Ebbtide.name, operation=operation)
    others = rows.values("per_second", system=system, operation=operation)
    return [our / other for our, other in zip(ours, others)]


def report(rows):
    table = []
    for system in sorted(rows.distinct("system"), key=[system.name for system in SYSTEMS].index):
        cells = [system]
        for operation in ("get", "set"):
            cells.append(rows.spread("per_second", scale=1e-3, system=system, operation=operation))
            found = ratios(rows, system, operation)
            cells.append(f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})")
        table.append(cells)
    results.markdown(["system", "get, thousands/s", "ebbtide : this", "set, thousands/s", "ebbtide : this"], table)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1, help="of each operation of a system in a round")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rows = results.Rows("python", "operations", ["round", "system", "operation", "per_second"])
    with tempfile.TemporaryDirectory() as folder:
        systems = []
        try:
            for system in SYSTEMS:
                systems.append(system(pathlib.Path(folder)))
            value = random.Random(options.seed).randbytes(VALUE_BYTES)
            for system in systems:
                for number in range(KEYS):
                    system.set(f"user:{number:08}", value)
            for round_number in range(options.rounds):
                run(rows, systems, options.seconds, round_number, options.seed)
        finally:
            for system in systems:
                system.stop()
    report(rows)


if __name__ == "__main__":
    main()
