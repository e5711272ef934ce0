"""meta-memcache: the meta protocol, with leases, stale values and early recaching."""

import random

import pytest
from harness import PATIENCE_SECONDS
from meta_memcache import (
    CacheClient,
    Key,
    LeasePolicy,
    MemcacheServerError,
    RecachePolicy,
    ServerAddress,
    SetMode,
    StalePolicy,
    connection_pool_factory_builder,
)

NEAR_LIMIT = 2**20 - 512
OVER_LIMIT = 2**20 + 1


@pytest.fixture
def client(server):
    with server.connect() as connection:
        assert connection.ask(b"flush_all\r\n") == b"OK\r\n"
    # With a small buffer this client takes half a minute to read a large value.
    connections = connection_pool_factory_builder(connection_timeout=PATIENCE_SECONDS, recv_timeout=PATIENCE_SECONDS, read_buffer_size=2 * OVER_LIMIT)
    return CacheClient.cache_client_from_servers(
        servers=[ServerAddress("127.0.0.1", server.port)],
        connection_pool_factory_fn=connections,
    )


def test_stores(client):
    assert client.get("k") is None
    assert not client.set("k", "v", ttl=0, set_mode=SetMode.REPLACE)
    assert not client.set("k", "v", ttl=0, set_mode=SetMode.APPEND)
    assert client.set("k", "v", ttl=0)
    assert client.get("k") == "v"
    assert not client.set("k", "w", ttl=0, set_mode=SetMode.ADD)
    assert client.set("k", "w", ttl=0, set_mode=SetMode.REPLACE)
    assert client.set("k", "x", ttl=0, set_mode=SetMode.APPEND)
    assert client.set("k", "u", ttl=0, set_mode=SetMode.PREPEND)
    assert client.get("k") == "uwx"
    assert client.delete("k")
    assert not client.delete("k")
    assert client.set("k", {"an": ["object", 1.5]}, ttl=0, set_mode=SetMode.ADD)
    assert client.get("k") == {"an": ["object", 1.5]}


def test_cas(client):
    assert client.get_cas("absent") == (None, None)
    first = client.set_cas("k", "1", ttl=0)
    assert client.get_cas("k") == ("1", first)
    assert client.set("k", "2", ttl=0, cas_token=first)
    assert not client.set("k", "3", ttl=0, cas_token=first)
    assert client.get("k") == "2"
    assert not client.delete("k", cas_token=first)
    _, second = client.get_cas("k")
    assert client.delete("k", cas_token=second)


def test_counts(client):
    assert client.delta_and_get("n", 1) is None
    assert client.delta_initialize_and_get("n", 1, initial_value=9, initial_ttl=1000) == 9
    assert client.delta_and_get("n", 1) == 10
    assert client.delta("n", 5, refresh_ttl=1000)
    # Without the flags that mark a number it is text to the client.
    assert client.get("n") == "15"
    assert client.delta_and_get("n", -3) == 12
    assert client.delta_and_get("n", -20) == 0


def test_many(client):
    values = {Key(f"key{i}"): f"value{i}" for i in range(500)}
    for key, value in values.items():
        assert client.set(key, value, ttl=0)
    assert client.multi_get([*values, Key("absent")]) == {**values, Key("absent"): None}
    with_tokens = client.multi_get_cas(list(values))
    assert {key: value for key, (value, _) in with_tokens.items()} == values


def test_values_and_keys(client):
    data = bytes(range(256)) * 4 + b"\r\nEN\r\n"
    # A key that the text protocol cannot write goes as base64.
    for key in ("k", "ключ", "with a blank"):
        assert client.set(key, data, ttl=0)
        assert client.get(key) == data
        assert client.set(key, b"", ttl=0)
        assert client.get(key) == b""
        assert client.delete(key)
    # Random, because the client compresses.
    large = random.randbytes(NEAR_LIMIT)
    assert client.set("large", large, ttl=0)
    assert client.get("large") == large
    with pytest.raises(MemcacheServerError):
        client.set("large", random.randbytes(OVER_LIMIT), ttl=0)
    assert client.get("large") is None


def test_expiry(client, gone):
    assert client.set("short", "v", ttl=1)
    for key in ("long", "touched", "got"):
        assert client.set(key, "v", ttl=1000)
    assert client.touch("touched", 1)
    assert not client.touch("absent", 1)
    assert client.get("got", touch_ttl=1) == "v"
    for key in ("short", "touched", "got"):
        gone(lambda: client.get(key))
    assert client.get("long") == "v"


def test_a_lease_goes_to_one(client):
    policy = LeasePolicy(ttl=1000, miss_retries=1, miss_retry_wait=0)
    value, token = client.get_or_lease_cas("k", policy)
    assert value is None and token is not None
    # The others wait for the winner, and give up.
    assert client.get_or_lease_cas("k", policy)[0] is None
    assert client.set("k", "v", ttl=1000, cas_token=token)
    assert client.get_or_lease("k", policy) == "v"


def test_a_stale_value_is_recached_by_one(client):
    recache = RecachePolicy(ttl=30)
    assert client.set("k", "old", ttl=1000)
    assert client.invalidate("k", stale_policy=StalePolicy(mark_stale_on_deletion_ttl=1000))
    assert client.get("k", recache_policy=recache) is None, "the first has to recache"
    assert client.get("k", recache_policy=recache) == "old", "the others get the old value meanwhile"
    assert client.set("k", "new", ttl=1000)
    assert client.get("k", recache_policy=recache) == "new"


def test_a_value_near_its_end_is_recached_by_one(client):
    recache = RecachePolicy(ttl=500)
    assert client.set("k", "old", ttl=100)
    assert client.get("k", recache_policy=recache) is None
    assert client.get("k", recache_policy=recache) == "old"
    assert client.set("k", "new", ttl=1000)
    assert client.get("k", recache_policy=recache) == "new"
