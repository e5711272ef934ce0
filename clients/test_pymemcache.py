"""pymemcache: pure Python, the classic text protocol."""

import pymemcache
import pytest
from harness import PATIENCE_SECONDS
from pymemcache.client.base import Client, PooledClient

NEAR_LIMIT = 2**20 - 512
OVER_LIMIT = 2**20 + 1


@pytest.fixture
def client(server):
    client = Client(("127.0.0.1", server.port), timeout=PATIENCE_SECONDS, connect_timeout=PATIENCE_SECONDS)
    client.flush_all(noreply=False)
    yield client
    client.close()


def test_stores(client):
    assert client.set(b"k", b"v", noreply=False)
    assert client.get(b"k") == b"v"
    assert not client.add(b"k", b"w", noreply=False)
    assert client.replace(b"k", b"w", noreply=False)
    assert client.append(b"k", b"x", noreply=False)
    assert client.prepend(b"k", b"u", noreply=False)
    assert client.get(b"k") == b"uwx"
    assert client.delete(b"k", noreply=False)
    assert not client.delete(b"k", noreply=False)
    assert client.get(b"k") is None
    assert not client.replace(b"k", b"w", noreply=False)


def test_cas(client):
    client.set(b"k", b"1", noreply=False)
    value, token = client.gets(b"k")
    assert value == b"1"
    assert client.cas(b"k", b"2", token) is True
    assert client.cas(b"k", b"3", token) is False
    assert client.get(b"k") == b"2"
    assert client.cas(b"absent", b"3", token) is None


def test_counts(client):
    assert client.incr(b"n", 1) is None
    client.set(b"n", b"9", noreply=False)
    assert client.incr(b"n", 1) == 10
    assert client.decr(b"n", 20) == 0
    client.set(b"n", b"18446744073709551615", noreply=False)
    assert client.incr(b"n", 2) == 1
    client.set(b"n", b"word", noreply=False)
    with pytest.raises(pymemcache.MemcacheClientError):
        client.incr(b"n", 1)


def test_many(client):
    values = {f"key{i}": f"value{i}".encode() for i in range(1000)}
    assert client.set_many(values, noreply=False) == []
    assert client.get_many([*values, "absent"]) == values
    assert set(client.gets_many(list(values))) == set(values)
    assert client.delete_many(list(values), noreply=False)
    assert client.get_many(list(values)) == {}


def test_flags_and_binary_values(client):
    data = bytes(range(256)) * 4 + b"\r\nEND\r\n"
    client.set(b"k", data, flags=4294967295, noreply=False)
    raw = client.raw_command(b"get k", b"END\r\n\r\nEND\r\n")
    assert raw.startswith(b"VALUE k 4294967295 1031\r\n")
    assert client.get(b"k") == data


def test_large_values(client):
    for length in (0, 1, 100_000, NEAR_LIMIT):
        data = (b"0123456789abcdef" * (length // 16 + 1))[:length]
        assert client.set(b"large", data, noreply=False)
        assert client.get(b"large") == data
    with pytest.raises(pymemcache.MemcacheServerError):
        client.set(b"large", b"x" * OVER_LIMIT, noreply=False)
    assert client.get(b"large") is None


def test_expiry(client, gone, rescue):
    for key in (b"long", b"touched"):
        assert client.set(key, b"v", expire=1000, noreply=False)
    assert client.set(b"short", b"v", expire=1, noreply=False)
    assert client.set(b"past", b"v", expire=-1, noreply=False)
    assert client.get(b"past") is None
    assert client.touch(b"touched", 1, noreply=False)
    assert not client.touch(b"absent", 1, noreply=False)
    rescue(
        lambda seconds: client.set(b"rescued", b"v", expire=seconds, noreply=False),
        lambda seconds: client.touch(b"rescued", seconds, noreply=False),
    )
    assert client.set(b"doomed", b"v", expire=4, noreply=False)
    for key in (b"short", b"touched", b"doomed"):
        gone(lambda: client.get(key))
    assert client.get(b"long") == b"v"
    assert client.get(b"rescued") == b"v"


def test_pool_and_stats(server):
    pooled = PooledClient(("127.0.0.1", server.port), max_pool_size=4, timeout=PATIENCE_SECONDS)
    pooled.set(b"k", b"v", noreply=False)
    assert pooled.get(b"k") == b"v"
    stats = pooled.stats()
    assert stats[b"curr_items"] >= 1
    assert stats[b"limit_maxbytes"] == 64 << 20
    pooled.close()
