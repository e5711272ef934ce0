"""What all parts of the comparison over the network have in common."""
import contextlib
import os

import client
import servers

KEYS = 1_000_000
VALUE_BYTES = 100
CONNECTIONS = 8
MEMORY_MIB = 1024
CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]
LOAD = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--get-ratio", 0.9, "--connections", CONNECTIONS]


def in_turn(names, round_number):
    """The servers in an order that differs from round to round, so that none is always the first."""
    names = list(names)
    start = round_number % len(names)
    return names[start:] + names[:start]


@contextlib.contextmanager
def filled(name, threads=1, server_cores=(SERVER_CORE,)):
    """A server that has all keys."""
    with servers.running(servers.ALL[name], MEMORY_MIB, threads=threads, cores=server_cores) as server:
        client.fill(server, KEYS, VALUE_BYTES, cores=[CLIENT_CORE])
        yield server


def cores_beside(server_cores):
    """Where the client runs: on the cores that the server leaves, or on all if it leaves none."""
    return [core for core in CORES if core not in server_cores] or CORES
