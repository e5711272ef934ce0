"""Slab classes above 63, which memcached does not have: clients read those of a server with a hundred pools."""

import subprocess

import bmemcached
import pytest
from harness import EBBTIDE, Server
from pymemcache.client.base import Client
from test_programs import BUILT, HERE, JAVA, TIMEOUT_SECONDS

POOLS = 99
# Class 1 is the pool `default`.
CLASSES = range(2, POOLS + 2)


@pytest.fixture(scope="module")
def server():
    rules = [flag for number in range(POOLS) for flag in ("--pool", f"p{number}:prefix=p{number}:")]
    with Server(EBBTIDE, "-m", "256", "-I", "64k", *rules) as server:
        client = Client(("127.0.0.1", server.port))
        assert client.set_many({f"p{number}:key": b"value" for number in range(POOLS)}, noreply=False) == []
        client.close()
        yield server


def sets(statistics):
    """The sets of each class, from lines such as `64:cmd_set`, as text or bytes."""
    found = {}
    for name, value in statistics.items():
        name = name.decode() if isinstance(name, bytes) else name
        if name.endswith(":cmd_set"):
            found[int(name.split(":")[0])] = int(value)
    return found


def by_program(*command):
    def read(server):
        words = [word.format(server=server) for word in command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done
        return {int(line.split()[0]): int(line.split()[1]) for line in done.stdout.splitlines()}

    return read


READERS = {
    "pymemcache": lambda server: sets(Client(server).stats("slabs")),
    "python-binary-memcached": lambda server: sets(bmemcached.Client([server]).stats("slabs")[server]),
    "php": by_program("php", f"{HERE}/php/classes.php", "{server}", "text"),
    "php binary": by_program("php", f"{HERE}/php/classes.php", "{server}", "binary"),
    "npm memcached": by_program("node", f"{BUILT}/node/classes.js", "{server}", "memcached"),
    "npm memjs": by_program("node", f"{BUILT}/node/classes.js", "{server}", "memjs"),
    "spymemcached": by_program(*JAVA, "Classes", "{server}", "spymemcached TEXT"),
    "spymemcached binary": by_program(*JAVA, "Classes", "{server}", "spymemcached BINARY"),
    "xmemcached": by_program(*JAVA, "Classes", "{server}", "xmemcached"),
}


@pytest.mark.parametrize("name", READERS)
def test_a_client_reads_the_classes_of_a_hundred_pools(server, name):
    found = READERS[name](f"127.0.0.1:{server.port}")
    assert {number: count for number, count in found.items() if count} == dict.fromkeys(CLASSES, 1)
