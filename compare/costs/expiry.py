"""How fast expired memory comes back, and what that costs.

`survival`: a cache is filled to 90 %, every other object with a TTL of 10 s, the others without. 15 s after the last write as
many new objects are written as have expired. Nothing needs to be evicted for them if the expired memory is reusable by then.

`polling`: every other object expires; the number of objects is polled until they are gone. Seconds count from the last expiry.
The processor time meanwhile, less what the server uses idle, is by million expired objects.

`long_lived`: objects that expire in 10 minutes, an hour or a day, or never. The processor time of the server for a million of
them and a minute in which nothing is asked and nothing expires; then the same while others beside them are written with a TTL of
10 s and expire. No server's clock is moved and the day itself is not waited for: the first number, times the minutes of the TTL,
is what an object costs before its expiry, and the second is what expiries cost among objects that stay.
"""
import concurrent.futures
import threading
import time

import client
import results
import servers
from costs import objects

VARIANTS = {"ebbtide": servers.ebbtide, "memcached": servers.memcached,
            "memcached -o no_lru_crawler": servers.memcached_without_crawler, "redis": servers.redis}
VALUE_BYTES = 230
OBJECT_BYTES = client.KEY_BYTES + VALUE_BYTES
TTL_SECONDS = 10
LONG_TTLS = {"never": 0, "600 s": 600, "3,600 s": 3600, "86,400 s": 86_400}

# Loads one after the other, so that each is over long before anything expires; the waiting goes on side by side.
loading = threading.Lock()


def measure(rounds, quick):
    survival(rounds, 16 if quick else 64)
    polling(rounds, 32 if quick else 256, 5 if quick else 130)
    long_lived(rounds, 32 if quick else 256, 20 if quick else 120)


def side_by_side(work):
    with concurrent.futures.ThreadPoolExecutor(len(VARIANTS)) as pool:
        return list(pool.map(work, VARIANTS))


def capacity(start, memory_mib):
    """How many objects a full cache holds."""
    with servers.running(start, memory_mib) as server:
        client.fill(server, (memory_mib << 21) // OBJECT_BYTES, VALUE_BYTES)
        time.sleep(0.5)
        return server.items()


def survival(rounds, memory_mib):
    rows = results.Rows("costs", "survival", ["round", "server", "unexpired", "survived", "evicted"])
    full = {name: capacity(start, memory_mib) for name, start in VARIANTS.items()}

    def one(name):
        half = int(full[name] * 0.45)
        with servers.running(VARIANTS[name], memory_mib) as server:
            with loading:
                began = time.monotonic()
                objects.write(server, range(2 * half), VALUE_BYTES, lambda number: TTL_SECONDS if number % 2 else 0)
                took = time.monotonic() - began
            if took > TTL_SECONDS / 2:
                raise SystemExit(f"{name}: the load took {took:.1f} s, too long for a TTL of {TTL_SECONDS} s")
            time.sleep(15)
            with loading:
                before = server.evictions()
                objects.write(server, range(2 * half, 3 * half), VALUE_BYTES, lambda number: 0)
                kept = objects.count_present(server, range(0, 2 * half, 2))
                return dict(server=name, unexpired=half, survived=kept, evicted=server.evictions() - before)

    for number in range(rounds):
        for row in side_by_side(one):
            rows.add(round=number, **row)
    table = [[name, f"{rows.median('unexpired', server=name):.0f}", rows.spread("survived", server=name),
              rows.spread("evicted", server=name)] for name in VARIANTS]
    results.markdown(["server", "unexpired objects", "of them there afterwards (min to max)", "evicted (min to max)"], table)


def polling(rounds, memory_mib, patience_seconds):
    shares = {"half": 0.5, "most": 0.99, "all": 1.0}
    rows = results.Rows("costs", "polling", ["round", "server", "expired", *shares, "us_per_million"])
    half = int((memory_mib << 20) * 0.3 / OBJECT_BYTES)
    ttl = 2 * TTL_SECONDS

    def one(name):
        with servers.running(VARIANTS[name], memory_mib) as server:
            with loading:
                objects.write(server, range(2 * half), VALUE_BYTES, lambda number: ttl if number % 2 else 0)
                last = time.monotonic() + ttl
            time.sleep(2)
            idle = processor_share(server, 4)
            time.sleep(max(0, last - 4 - time.monotonic()))
            started, used = time.monotonic(), server.processor_seconds()
            reached = {}
            polls = 0
            while len(reached) < len(shares) and time.monotonic() < last + patience_seconds:
                gone = 2 * half - server.items()
                polls += 1
                late = time.monotonic() - last
                reached.update({share: late for share, part in shares.items() if gone >= part * half and share not in reached})
                time.sleep(0.05)
            elapsed = time.monotonic() - started
            busy = server.processor_seconds() - used - idle * elapsed - polls * poll_cost(server)
            return dict(server=name, expired=gone, us_per_million=busy * 1e6 / max(gone, 1) * 1e6,
                        **{share: reached.get(share, float("inf")) for share in shares})

    for number in range(rounds):
        for row in side_by_side(one):
            rows.add(round=number, **row)
    table = []
    for name in VARIANTS:
        gone = rows.median("expired", server=name)
        cost = rows.spread("us_per_million", "{:.0f}", 1e-3, server=name) if gone > half / 100 else "-"
        table.append([name, half, f"{gone:.0f}", *(rows.spread(share, "{:.1f}", server=name) for share in shares), cost])
    results.markdown(["server", "expired objects", "gone at the end", "half gone after s (min to max)", "99 % gone",
                      "all gone", "ms of processor per million gone"], table)


def long_lived(rounds, memory_mib, seconds):
    rows = results.Rows("costs", "long_lived", ["round", "server", "ttl", "held", "idle", "beside"])
    held = int((memory_mib << 20) * 0.3 / OBJECT_BYTES)
    short = held // 3
    to_minute = 60 / held * 1e6

    def one(name, ttl):
        with servers.running(VARIANTS[name], memory_mib) as server:
            before_load = processor_share(server, 4)
            with loading:
                objects.write(server, range(held), VALUE_BYTES, lambda number: LONG_TTLS[ttl])
            time.sleep(5)
            idle = processor_share(server, seconds) - before_load
            with loading:
                objects.write(server, range(held, held + short), VALUE_BYTES, lambda number: TTL_SECONDS)
            beside = processor_share(server, 3 * TTL_SECONDS) - before_load
            return dict(server=name, ttl=ttl, held=server.items(), idle=idle * to_minute, beside=beside * to_minute)

    for number in range(rounds):
        for ttl in LONG_TTLS:
            for row in side_by_side(lambda name: one(name, ttl)):
                rows.add(round=number, **row)
    table = []
    for name in VARIANTS:
        for ttl in LONG_TTLS:
            of = {"server": name, "ttl": ttl}
            costs = (rows.spread(cost, "{:.1f}", 1e3, **of) for cost in ("idle", "beside"))
            table.append([name, ttl, held, f"{rows.median('held', **of):.0f}", *costs])
    results.markdown(["server", "TTL", "objects", "there at the end", "ms of processor per million and minute (min to max)",
                      f"the same while {short} others of {TTL_SECONDS} s expire"], table)


def processor_share(server, seconds):
    before = server.processor_seconds()
    time.sleep(seconds)
    return (server.processor_seconds() - before) / seconds


def poll_cost(server):
    """Processor seconds of one look at the statistics."""
    before = server.processor_seconds()
    for _ in range(100):
        server.items()
    return (server.processor_seconds() - before) / 100
