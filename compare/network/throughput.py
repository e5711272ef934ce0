"""Operations per second, and what one costs the server, by pipeline depth and keys of a get; one server thread.

Where `busy` is near 1, the server's core is the limit; where it is lower, the client is, and only the processor time per
operation tells servers apart.
"""
import client
import results
import servers
from network.setup import CLIENT_CORE, LOAD, filled, in_turn

CASES = {
    "pipeline 1": ["--pipeline", 1],
    "pipeline 16": ["--pipeline", 16],
    "pipeline 64": ["--pipeline", 64],
    "multiget 50": ["--batch", 50],
    "multiget 100": ["--batch", 100],
}


def measure(rounds, seconds):
    rows = results.Rows("network", "throughput", ["round", "server", "case", "ops", "us", "busy"])
    for number in range(rounds):
        for name in in_turn(servers.ALL, number):
            with filled(name) as server:
                for case, flags in CASES.items():
                    report = client.bench(server, *LOAD, *flags, "--seconds", seconds, cores=[CLIENT_CORE])
                    rows.add(round=number, server=name, case=case, ops=report["ops_per_second"],
                             us=report["server_us_per_op"], busy=report["server_busy"])
    show(rows)
    return rows


def show(rows):
    table = []
    for case in rows.distinct("case"):
        ours = rows.median("ops", server="ebbtide", case=case)
        cost = rows.median("us", server="ebbtide", case=case)
        for server in servers.ALL:
            where = {"server": server, "case": case}
            table.append([case, server, rows.spread("ops", scale=1e-3, **where), rows.spread("us", "{:.2f}", **where),
                          f"{rows.median('busy', **where):.2f}", f"{ours / rows.median('ops', **where):.2f}",
                          f"{rows.median('us', **where) / cost:.2f}"])
    results.markdown(["load", "server", "kops/s (min to max)", "server us per op (min to max)", "busy",
                      "ebbtide's ops/s over its", "its us per op over ebbtide's"], table)
    folder = rows.path.parent
    results.bars(rows, folder / "throughput.svg", "ops", "case", "thousand operations per second", 1e-3)
    results.bars(rows, folder / "processor.svg", "us", "case", "server's processor time per operation, us")
