"""Several Ebbtides behind one client, as docs/scale-out.md says: the configurations are taken from there."""

import contextlib
import json
import pathlib
import re
import socket
import subprocess
import tempfile
import threading

import pytest
from harness import EBBTIDE, PATIENCE_SECONDS, ROOT, Server, free_port, wait_for
from pymemcache.client.base import Client

PAGE = (ROOT / "docs/scale-out.md").read_text()
# Answers may take half a second on the page, and longer on a machine that stalls: in seconds, milliseconds, microseconds.
PAGE_TIMEOUT = re.compile(r"((?<![a-z_])(?:connect_|receive_|send_)?timeout\"?[:=] ?)(0\.5|500_000|500)(?!\d)")
LONGER = {"0.5": "30", "500": "30000", "500_000": "30000000"}
NODES = 3
KEYS = [f"key{number}" for number in range(600)]
# A request that fails is tried again as often as the page advises.
TRIES = 4
# So much work in a row counts as steady.
STEADY = 200


class Cluster:
    """Nodes that can be killed and brought back where they were, for whoever spreads the keys."""

    def __init__(self, stack):
        self.nodes = [stack.enter_context(Server(EBBTIDE, "-m", "64")) for _ in range(NODES)]

    def configured(self, language, mark):
        """The block of the page that holds `mark`, with the addresses of this cluster."""
        blocks = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
        (block,) = [block for block in blocks if mark in block]
        block, count = PAGE_TIMEOUT.subn(lambda found: found[1] + LONGER[found[2]], block)
        assert count > 0
        for number, node in enumerate(self.nodes, 1):
            assert f"10.0.0.{number}:11211" in block
            block = block.replace(f"10.0.0.{number}:11211", f"127.0.0.1:{node.port}")
        return block

    def items(self):
        return [int(node.stat("curr_items")) for node in self.nodes]


class Proxied:
    """twemproxy in front."""

    def __init__(self, cluster, stack):
        self.port, self.stats_port = free_port(), free_port()
        file = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory())) / "nutcracker.yml"
        block = cluster.configured("yaml", "distribution: ketama")
        assert "127.0.0.1:22121" in block
        file.write_text(block.replace("127.0.0.1:22121", f"127.0.0.1:{self.port}"))
        words = ["nutcracker", "-c", file, "-a", "127.0.0.1", "-s", str(self.stats_port), "-i", "100"]
        words += ["-o", file.with_name("log"), "-p", file.with_name("pid")]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL)
        stack.callback(process.wait, PATIENCE_SECONDS)
        stack.callback(process.terminate)
        wait_for(lambda: connects(self.port), "it listens")

    def client(self):
        return Client(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS, connect_timeout=PATIENCE_SECONDS, default_noreply=False)

    def ejections(self):
        with socket.create_connection(("127.0.0.1", self.stats_port), 10) as stream:
            answer = b"".join(iter(lambda: stream.recv(65536), b""))
        return json.loads(answer)["cache"]["server_ejects"]


class Spreading:
    """A client that spreads the keys itself."""

    def __init__(self, mark):
        self.mark = mark

    def __call__(self, cluster, _):
        self.block = cluster.configured("python", self.mark)
        return self

    def client(self):
        names = {}
        exec(self.block, names)
        return names["client"]


FRONTS = {"twemproxy": Proxied, "pymemcache": Spreading("HashClient("), "pylibmc": Spreading("pylibmc.Client(")}


@pytest.fixture
def cluster():
    with contextlib.ExitStack() as stack:
        cluster = Cluster(stack)
        cluster.stack = stack
        yield cluster


@pytest.fixture(params=FRONTS)
def front(cluster, request):
    return FRONTS[request.param](cluster, cluster.stack)


def connects(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    except OSError:
        return False


def text(value):
    return value.decode() if isinstance(value, bytes) else value


def read(client, key):
    return text(client.get(key))


def store_all(client):
    for key in KEYS:
        assert client.set(key, f"value of {key}"), key


def assert_spread(counts):
    assert sum(counts) == len(KEYS), counts
    assert all(len(KEYS) * 0.1 < count < len(KEYS) * 0.6 for count in counts), counts


def test_keys_are_spread_and_found_again(cluster, front):
    store_all(front.client())
    assert_spread(cluster.items())
    # Another client, which has learnt nothing from storing them.
    client = front.client()
    for key in KEYS:
        assert read(client, key) == f"value of {key}"
    found = client.get_multi(KEYS)
    assert {text(key): text(value) for key, value in found.items()} == {key: f"value of {key}" for key in KEYS}


def test_two_client_libraries_agree_where_a_key_is(cluster):
    first, second = (FRONTS[name](cluster, cluster.stack).client() for name in ("pymemcache", "pylibmc"))
    store_all(first)
    for key in KEYS:
        assert read(second, key) == f"value of {key}"


class Worker(threading.Thread):
    """An application that goes on working: it stores and reads one key after the other, and tries again what failed."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client = client
        self.stop = threading.Event()
        # For each piece of work whether it was done in the end.
        self.done = []

    def run(self):
        while not self.stop.is_set():
            key = f"work{len(self.done) % 500}"
            self.done.append(any(succeeds(self.client, key, "work") for _ in range(TRIES)))

    def find_its_feet(self):
        """Polls until much work in a row was done."""
        start = len(self.done)
        wait_for(lambda: len(self.done) >= start + STEADY and all(self.done[-STEADY:]), "requests succeed")


def succeeds(client, key, value):
    try:
        return bool(client.set(key, value)) and read(client, key) == value
    except Exception:
        return False


def held_by(node, keys):
    with node.connect() as connection:
        answer = connection.ask(f"get {' '.join(keys)}\r\n".encode(), b"END\r\n")
    return {line.split()[1] for line in answer.decode().splitlines() if line.startswith("VALUE ")}


def test_a_node_dies_and_comes_back(cluster, front):
    client = front.client()
    for key in KEYS:
        assert client.set(key, "before")
    dying = cluster.nodes[1]
    lost = held_by(dying, KEYS)
    kept = set(KEYS) - lost
    assert lost and kept
    worker = Worker(front.client())
    worker.start()
    try:
        worker.find_its_feet()
        dying.kill()
        worker.find_its_feet()
        # What the others hold has not moved; what the dead one held finds a place.
        client = front.client()
        for key in kept:
            wait_for(lambda: reads(client, key, "before"), "the key is read")
        for key in lost:
            wait_for(lambda: succeeds(client, key, "during"), "the key goes to another server")

        dying.bring_back()
        # Nobody tells anyone; the work reaches it again.
        wait_for(lambda: int(dying.stat("curr_items")) > 0, "the server has keys again")
        worker.find_its_feet()
        client = front.client()
        wait_for(lambda: all(succeeds(client, key, "after") for key in KEYS) and held_by(dying, KEYS) == lost, "the keys are where they were")
    finally:
        worker.stop.set()
        worker.join(PATIENCE_SECONDS)
    assert not worker.is_alive()
    if isinstance(front, Proxied):
        assert front.ejections() > 0


def reads(client, key, value):
    try:
        return read(client, key) == value
    except Exception:
        return False
