"""Resident memory against the limit: empty, full, and full with 10,000 idle connections."""
import resource

import client
import results
import servers

MEMORY_MIB = 256
VALUE_BYTES = 230
CONNECTIONS = 10_000


def measure(rounds, quick):
    resource.setrlimit(resource.RLIMIT_NOFILE, (CONNECTIONS + 2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    rows = results.Rows("costs", "resident", ["round", "server", "empty", "full", "connected"])
    many = {"ebbtide": ["-c", CONNECTIONS + 1000], "memcached": ["-c", CONNECTIONS + 1000],
            "redis": ["--maxclients", CONNECTIONS + 1000]}
    mebibytes = lambda server: server.resident_bytes() / (1 << 20)
    for number in range(1 if quick else rounds):
        for name, start in servers.ALL.items():
            with servers.running(start, MEMORY_MIB, threads=2, flags=many[name]) as server:
                empty = mebibytes(server)
                client.fill(server, (MEMORY_MIB << 21) // (client.KEY_BYTES + VALUE_BYTES), VALUE_BYTES)
                full = mebibytes(server)
                connections = [server.connect() for _ in range(CONNECTIONS)]
                question = b"PING\r\n" if server.protocol == "redis" else b"version\r\n"
                for connection in connections:
                    connection.sendall(question)
                for connection in connections:
                    assert connection.recv(100).startswith((b"VERSION", b"+PONG"))
                rows.add(round=number, server=name, empty=empty, full=full, connected=mebibytes(server))
                for connection in connections:
                    connection.close()
    table = [[server, MEMORY_MIB, *(rows.spread(column, server=server) for column in ("empty", "full", "connected"))]
             for server in servers.ALL]
    results.markdown(["server", "limit, MiB", "VmRSS empty, MiB (min to max)", "full", "full, 10,000 idle connections"], table)
