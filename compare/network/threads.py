"""Operations per second by the number of the server's threads, each on a core of its own.

The client takes the cores that are left, one for each thread of the server at most, but four if there are; each thread of the
server has eight connections. Where no core is left it shares the server's, and the numbers are what the machine as
a whole does.
"""
import client
import results
import servers
from network.setup import CONNECTIONS, CORES, OPERATIONS, cores_beside, filled, in_turn


def counts():
    """1, 2, 4, ... and all cores."""
    found = [1]
    while found[-1] * 2 < len(CORES):
        found.append(found[-1] * 2)
    return sorted({*found, len(CORES)})


def measure(rounds, seconds):
    rows = results.Rows("network", "threads", ["round", "server", "threads", "ops", "us"])
    for number in range(rounds):
        for threads in counts():
            cores = CORES[:threads]
            beside = cores_beside(cores)
            client_threads = min(len(beside), max(4, threads))
            load = [*OPERATIONS, "--connections", CONNECTIONS * threads, "--pipeline", 16, "--threads", client_threads]
            for name in in_turn(servers.ALL, number):
                with filled(name, threads, cores) as server:
                    report = client.bench(server, *load, "--seconds", seconds, cores=beside)
                    rows.add(round=number, server=name, threads=threads, ops=report["ops_per_second"],
                             us=report["server_us_per_op"])
    show(rows)
    return rows


def show(rows):
    table = [[server, threads, rows.spread("ops", scale=1e-3, server=server, threads=threads),
              rows.spread("us", "{:.2f}", server=server, threads=threads)]
             for server in servers.ALL for threads in rows.distinct("threads")]
    results.markdown(["server", "threads", "kops/s at pipeline 16 (min to max)", "server us per op (min to max)"], table)
    results.lines(rows, rows.path.parent / "threads.svg", "ops", "threads", ("threads", "thousand operations per second"),
                  1e-3)
