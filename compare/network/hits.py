"""Hit ratio and throughput together, by memory: a look-aside client that sets what it missed (CacheLib's Fig. 12).

500,000 keys, Zipf 0.99, values of about 230 bytes (lognormal), about 140 MB of keys and values. All keys are set once, then
1.5 M are asked for, then it is measured. Multigets of 50: what memcached is best at. memcached takes memory beyond -m (its
index, and a page per class at least), so the resident memory stands beside the hit ratio.
"""
import client
import results
import servers
from network.setup import CLIENT_CORE, CONNECTIONS, SERVER_CORE, in_turn

MEMORY_MIB = [8, 16, 32, 64, 96, 128]
KEYS = 500_000
VALUE_BYTES = "lognormal:230:0.5:1000"
LOAD = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--get-ratio", 1, "--fill", "--batch", 50,
        "--connections", CONNECTIONS]


def measure(rounds, seconds):
    rows = results.Rows("network", "hits", ["round", "server", "memory", "hit_ratio", "ops", "us", "resident_mib"])
    names = ["ebbtide", "memcached"]
    for number in range(rounds):
        for memory in MEMORY_MIB:
            for name in in_turn(names, number):
                with servers.running(servers.ALL[name], memory, cores=[SERVER_CORE]) as server:
                    client.fill(server, KEYS, VALUE_BYTES, cores=[CLIENT_CORE])
                    client.bench(server, *LOAD, "--requests", 1_500_000, "--seed", 2 * number, cores=[CLIENT_CORE])
                    report = client.bench(server, *LOAD, "--seconds", seconds, "--seed", 2 * number + 1, cores=[CLIENT_CORE])
                    rows.add(round=number, server=name, memory=memory, hit_ratio=report["hit_ratio"],
                             ops=report["ops_per_second"], us=report["server_us_per_op"],
                             resident_mib=server.resident_bytes() / (1 << 20))
    show(rows, names)
    return rows


def show(rows, names):
    table = []
    for memory in MEMORY_MIB:
        for server in names:
            where = {"server": server, "memory": memory}
            table.append([memory, server, f"{rows.median('resident_mib', **where):.0f}", rows.spread("hit_ratio", "{:.4f}", **where),
                          rows.spread("ops", scale=1e-3, **where), rows.spread("us", "{:.2f}", **where)])
    results.markdown(["-m, MiB", "server", "VmRSS, MiB", "hit ratio (min to max)", "kops/s, fills included (min to max)",
                      "server us per op (min to max)"], table)
    folder = rows.path.parent
    results.lines(rows, folder / "hits-ratio.svg", "hit_ratio", "memory", ("MiB", "hit ratio"))
    results.lines(rows, folder / "hits-ops.svg", "ops", "memory", ("MiB", "thousand operations per second"), 1e-3)
