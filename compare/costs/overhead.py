"""Bytes per object over key and value, in a full cache that evicts: the memory limit less keys and values, by live objects.

`new keys`: four times as much is written as fits, each key once.
`look-aside`: then twice as much is asked for (Zipf 0.99), and what is missed is set. Nothing is overwritten.
`overwrites`: then twice as much is set at random among the same keys, so about a quarter of the sets replace a live object.
`present keys`: then twice as much is set at random among as many keys as fitted new, so most sets replace one.
What was replaced keeps its bytes in a segment until the segment is compacted or evicted.
"""
import time

import client
import results
import servers

MEMORY_MIB = 128
VALUES = [25, 55, 230]


def measure(rounds, quick):
    rows = results.Rows("costs", "overhead", ["round", "server", "value", "state", "items", "overhead", "resident"])
    for number in range(rounds):
        for value in VALUES[:1] if quick else VALUES:
            for name, start in servers.ALL.items():
                with servers.running(start, MEMORY_MIB) as server:
                    for state, items in states(server, value, number):
                        per_object = lambda memory: memory / items - client.KEY_BYTES - value
                        rows.add(round=number, server=name, value=value, state=state, items=items,
                                 overhead=per_object(MEMORY_MIB << 20), resident=per_object(server.resident_bytes()))
    table = []
    for value in rows.distinct("value"):
        for server in servers.ALL:
            cells = [rows.spread("overhead", "{:.1f}", server=server, value=value, state=state)
                     for state in rows.distinct("state")]
            where = {"server": server, "value": value, "state": "new keys"}
            table.append([value, server, f"{rows.median('items', **where):.0f}", *cells,
                          f"{rows.median('resident', **where):.1f}"])
    results.markdown(["value bytes", "server", "objects", "overhead, new keys (min to max)", "look-aside", "overwrites",
                      "present keys", "new keys, by VmRSS"], table)


def states(server, value, seed):
    """Brings the server into one state after the other, and tells how many objects it has then."""
    fits = (MEMORY_MIB << 20) // (client.KEY_BYTES + value)
    client.fill(server, 4 * fits, value)
    new_keys = settled(server)
    yield "new keys", new_keys
    load = ["--requests", 2 * fits, "--value-size", value, "--pipeline", 64, "--seed", seed]
    client.bench(server, *load, "--keys", 4 * fits, "--get-ratio", 1, "--fill")
    yield "look-aside", settled(server)
    client.bench(server, *load, "--keys", 4 * fits, "--get-ratio", 0, "--popularity", "uniform")
    yield "overwrites", settled(server)
    client.bench(server, *load, "--keys", new_keys, "--get-ratio", 0, "--popularity", "uniform")
    yield "present keys", settled(server)


def settled(server):
    time.sleep(0.5)
    return server.items()
