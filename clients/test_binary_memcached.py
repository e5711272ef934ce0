"""python-binary-memcached: the binary protocol in pure Python."""

import random

import bmemcached
import pytest
from harness import PATIENCE_SECONDS
from bmemcached.exceptions import MemcachedException

NEAR_LIMIT = 2**20 - 512
OVER_LIMIT = 2**20 + 1


@pytest.fixture
def client(server):
    client = bmemcached.Client([f"127.0.0.1:{server.port}"], socket_timeout=PATIENCE_SECONDS)
    assert client.flush_all()
    yield client
    client.disconnect_all()


def test_stores(client):
    assert client.get("k") is None
    assert not client.replace("k", "v")
    assert client.set("k", "v")
    assert client.get("k") == "v"
    assert not client.add("k", "w")
    assert client.replace("k", {"an": ["object", 1.5]})
    assert client.get("k") == {"an": ["object", 1.5]}
    assert client.delete("k")
    assert client.get("k") is None
    assert client.add("k", "v")
    assert client.get("k") == "v"


def test_cas(client):
    assert client.gets("absent") == (None, None)
    stored, first = client.set("k", "1", get_cas=True)
    assert stored
    assert client.gets("k") == ("1", first)
    assert client.cas("k", "2", first)
    assert not client.cas("k", "3", first)
    assert client.get("k") == "2"
    _, second = client.gets("k")
    assert second != first
    assert not client.delete("k", cas=first)
    assert client.delete("k", cas=second)
    assert not client.cas("k", "3", second)


def test_counts(client):
    assert client.incr("n", 1, default=9) == 9
    assert client.incr("n", 1) == 10
    assert client.decr("n", 3) == 7
    assert client.decr("n", 20) == 0
    client.set("word", "word")
    with pytest.raises(MemcachedException):
        client.incr("word", 1)


def test_many(client):
    values = {f"key{i}": f"value{i}" for i in range(500)}
    assert client.set_multi(values) == []
    assert client.get_multi([*values, "absent"]) == values
    with_tokens = client.get_multi(list(values), get_cas=True)
    assert {key: value for key, (value, _) in with_tokens.items()} == values
    _, token = with_tokens["key0"]
    assert client.set("key0", "changed")
    failed = client.set_multi({("key0", token): "no", "key1": "yes"})
    assert [key for key, _ in failed] == ["key0"]
    assert client.get_multi(["key0", "key1"]) == {"key0": "changed", "key1": "yes"}
    assert client.delete_multi(list(values))
    assert client.get_multi(list(values)) == {}


def test_values(client):
    data = bytes(range(256)) * 4 + b"\r\nEND\r\n"
    assert client.set("k", data)
    assert client.get("k") == data
    assert client.set("k", b"")
    assert client.get("k") == b""
    # Random, because the client compresses.
    large = random.randbytes(NEAR_LIMIT)
    assert client.set("large", large)
    assert client.get("large") == large
    with pytest.raises(MemcachedException, match="large"):
        client.set("large", random.randbytes(OVER_LIMIT))
    assert client.get("large") is None


def test_expiry(client, gone):
    assert client.set("short", "v", time=1)
    assert client.set("long", "v", time=1000)
    assert client.incr("counted", 1, default=5, time=1) == 5
    for key in ("short", "counted"):
        gone(lambda: client.get(key))
    assert client.get("long") == "v"


def test_stats(client, server):
    stats = client.stats()[f"127.0.0.1:{server.port}"]
    assert int(stats["limit_maxbytes"]) == 64 << 20
