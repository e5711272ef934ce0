"""Client libraries that people use, the same on memcached and on Ebbtide."""

import time

import pylibmc
import pymemcache
import pytest
from pymemcache.client.base import Client, PooledClient

LARGE = 1_000_000


@pytest.fixture
def python(either):
    client = Client(("127.0.0.1", either.port), timeout=10, connect_timeout=10)
    client.flush_all()
    yield client
    client.close()


@pytest.fixture
def native(either):
    client = pylibmc.Client([f"127.0.0.1:{either.port}"], behaviors={"cas": True, "tcp_nodelay": True})
    client.flush_all()
    yield client
    client.disconnect_all()


def wait_until_gone(read, seconds):
    """Polls until `read` gives nothing, and returns how long that took."""
    start = time.monotonic()
    while read() is not None:
        assert time.monotonic() - start < seconds, "it did not expire"
        time.sleep(0.05)
    return time.monotonic() - start


def test_pymemcache_stores(python):
    assert python.set(b"k", b"v", noreply=False)
    assert python.get(b"k") == b"v"
    assert not python.add(b"k", b"w", noreply=False)
    assert python.replace(b"k", b"w", noreply=False)
    assert python.append(b"k", b"x", noreply=False)
    assert python.prepend(b"k", b"u", noreply=False)
    assert python.get(b"k") == b"uwx"
    assert python.delete(b"k", noreply=False)
    assert not python.delete(b"k", noreply=False)
    assert python.get(b"k") is None
    assert not python.replace(b"k", b"w", noreply=False)


def test_pymemcache_cas(python):
    python.set(b"k", b"1", noreply=False)
    value, token = python.gets(b"k")
    assert value == b"1"
    assert python.cas(b"k", b"2", token) is True
    assert python.cas(b"k", b"3", token) is False
    assert python.get(b"k") == b"2"
    assert python.cas(b"absent", b"3", token) is None


def test_pymemcache_counts(python):
    assert python.incr(b"n", 1) is None
    python.set(b"n", b"9", noreply=False)
    assert python.incr(b"n", 1) == 10
    assert python.decr(b"n", 20) == 0
    python.set(b"n", b"18446744073709551615", noreply=False)
    assert python.incr(b"n", 2) == 1
    python.set(b"n", b"word", noreply=False)
    with pytest.raises(pymemcache.MemcacheClientError):
        python.incr(b"n", 1)


def test_pymemcache_many(python):
    values = {f"key{i}": f"value{i}".encode() for i in range(1000)}
    assert python.set_many(values, noreply=False) == []
    assert python.get_many([*values, "absent"]) == values
    assert set(python.gets_many(list(values))) == set(values)
    assert python.delete_many(list(values), noreply=False)
    assert python.get_many(list(values)) == {}


def test_pymemcache_flags_and_binary_values(python):
    data = bytes(range(256)) * 4 + b"\r\nEND\r\n"
    python.set(b"k", data, flags=4294967295, noreply=False)
    raw = python.raw_command(b"get k", b"END\r\n\r\nEND\r\n")
    assert raw.startswith(b"VALUE k 4294967295 1031\r\n")
    assert python.get(b"k") == data


def test_pymemcache_large_values(python):
    for length in (0, 1, 100_000, LARGE):
        data = (b"0123456789abcdef" * (length // 16 + 1))[:length]
        assert python.set(b"large", data, noreply=False)
        assert python.get(b"large") == data
    with pytest.raises(pymemcache.MemcacheServerError):
        python.set(b"large", b"x" * (LARGE * 2), noreply=False)
    assert python.get(b"large") is None


def test_pymemcache_expiry(python):
    python.set(b"k", b"v", expire=3, noreply=False)
    python.set(b"touched", b"v", expire=2, noreply=False)
    python.set(b"past", b"v", expire=-1, noreply=False)
    assert python.get(b"k") == b"v"
    assert python.get(b"past") is None
    assert python.touch(b"touched", 100, noreply=False)
    assert not python.touch(b"absent", 100, noreply=False)
    assert 1.5 < wait_until_gone(lambda: python.get(b"k"), 4.5)
    assert python.get(b"touched") == b"v"


def test_pymemcache_pool_and_stats(either):
    client = PooledClient(("127.0.0.1", either.port), max_pool_size=4, timeout=10)
    client.set(b"k", b"v", noreply=False)
    assert client.get(b"k") == b"v"
    stats = client.stats()
    assert stats[b"curr_items"] >= 1
    assert stats[b"limit_maxbytes"] == 64 << 20
    client.close()


def test_pylibmc_stores(native):
    assert native.set("k", "v")
    assert native.get("k") == "v"
    assert not native.add("k", "w")
    assert native.replace("k", {"an": ["object", 1.5]})
    assert native.get("k") == {"an": ["object", 1.5]}
    assert native.set("s", b"b") and native.append("s", b"c") and native.prepend("s", b"a")
    assert native.get("s") == b"abc"
    assert native.delete("k")
    assert not native.delete("k")
    assert native.get("k") is None


def test_pylibmc_cas(native):
    native.set("k", 1)
    value, token = native.gets("k")
    assert value == 1
    assert native.cas("k", 2, token)
    assert not native.cas("k", 3, token)
    assert native.get("k") == 2


def test_pylibmc_counts(native):
    native.set("n", 41)
    assert native.incr("n") == 42
    assert native.decr("n", 100) == 0
    with pytest.raises(pylibmc.NotFound):
        native.incr("absent")


def test_pylibmc_many(native):
    values = {f"key{i}": "x" * i for i in range(500)}
    assert native.set_multi(values) == []
    assert native.get_multi(list(values) + ["absent"]) == values
    assert native.delete_multi(list(values))
    assert native.get_multi(list(values)) == {}


def test_pylibmc_large_values(native):
    data = b"z" * LARGE
    assert native.set("large", data)
    assert native.get("large") == data
    with pytest.raises(pylibmc.Error):
        native.set("large", data * 2)


def test_pylibmc_expiry(native):
    native.set("k", "v", time=3)
    native.set("touched", "v", time=2)
    assert native.touch("touched", 100)
    assert native.get("k") == "v"
    assert 1.5 < wait_until_gone(lambda: native.get("k"), 4.5)
    assert native.get("touched") == "v"
