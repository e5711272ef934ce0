"""The cost of a proxy between client and node: requests per second and latency at pipeline 1, closed loop.

Each server runs alone, and then behind twemproxy, which gets the core of the server: as on one host with a busy core. The
keys are few enough that all requests hit.
"""
import contextlib
import pathlib
import subprocess
import tempfile
import time

import client
import results
import servers
from network.setup import CLIENT_CORE, SERVER_CORE, in_turn

NODES = {"ebbtide": servers.ebbtide, "memcached": servers.memcached}
FRONTS = ["direct", "twemproxy"]
LOAD = ["--keys", 100_000, "--value-size", 100, "--get-ratio", 0.9, "--connections", 8, "--pipeline", 1]
CONFIGURATION = """
cache:
  listen: 127.0.0.1:{port}
  hash: fnv1a_64
  distribution: ketama
  preconnect: true
  servers:
    - 127.0.0.1:{node}:1 node
"""


class Proxied:
    """A node as clients see it through a proxy."""

    protocol = "memcached"

    def __init__(self, node, port):
        self.node, self.port = node, port

    def processor_seconds(self):
        return self.node.processor_seconds()


@contextlib.contextmanager
def front(name, node):
    if name == "direct":
        yield node
        return
    with tempfile.TemporaryDirectory() as folder:
        port, file = servers.free_port(), pathlib.Path(folder) / "nutcracker.yml"
        file.write_text(CONFIGURATION.format(port=port, node=node.port))
        command = [*servers.pinned([SERVER_CORE]), servers.program("nutcracker"), "-c", file, "-o", f"{folder}/log",
                   "-p", f"{folder}/pid", "-s", servers.free_port()]
        proxy = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL)
        try:
            proxied = Proxied(node, port)
            for _ in range(200):
                with contextlib.suppress(OSError):
                    servers.socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.05)
            yield proxied
        finally:
            proxy.terminate()
            proxy.wait()


def measure(rounds, seconds):
    rows = results.Rows("network", "hops", ["round", "server", "front", "ops", "p50_us", "p99_us"])
    for number in range(rounds):
        for name in in_turn(NODES, number):
            with servers.running(NODES[name], 256, cores=[SERVER_CORE]) as node:
                client.fill(node, 100_000, 100, cores=[CLIENT_CORE])
                for through in in_turn(FRONTS, number):
                    with front(through, node) as target:
                        report = client.bench(target, *LOAD, "--seconds", seconds, cores=[CLIENT_CORE])
                        rows.add(round=number, server=name, front=through, ops=report["ops_per_second"],
                                 p50_us=report["latency"]["p50_us"], p99_us=report["latency"]["p99_us"])
    show(rows)
    return rows


def show(rows):
    table = []
    for server in NODES:
        alone = rows.median("ops", server=server, front="direct")
        for through in FRONTS:
            where = {"server": server, "front": through}
            table.append([server, through, rows.spread("ops", scale=1e-3, **where),
                          f"{rows.median('ops', **where) / alone:.2f}", rows.spread("p50_us", **where),
                          rows.spread("p99_us", **where)])
    results.markdown(["server", "through", "requests/s in thousands", "of direct", "p50 us", "p99 us"], table)
