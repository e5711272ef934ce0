"""What all parts of the comparison over the network have in common."""
import contextlib
import os
import pathlib

import client
import servers

KEYS = 1_000_000
VALUE_BYTES = 100
CONNECTIONS = 8
MEMORY_MIB = 1024


def core_of(processor):
    """The core that a processor is a thread of; a core of its own where the system does not tell."""
    topology = pathlib.Path(f"/sys/devices/system/cpu/cpu{processor}/topology")
    try:
        return [(topology / name).read_text() for name in ("physical_package_id", "core_id")]
    except OSError:
        return [processor]


def sharers(processor):
    """How many before it are threads of the same core."""
    return sum(core_of(other) == core_of(processor) for other in PROCESSORS if other < processor)


PROCESSORS = sorted(os.sched_getaffinity(0))
# Those that share a core with an earlier one come last.
CORES = sorted(PROCESSORS, key=sharers)
SERVER_CORE, CLIENT_CORE = CORES[0], CORES[-1]
OPERATIONS = ["--keys", KEYS, "--value-size", VALUE_BYTES, "--get-ratio", 0.9]
LOAD = [*OPERATIONS, "--connections", CONNECTIONS]


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
