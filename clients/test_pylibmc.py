"""pylibmc: libmemcached, the classic text protocol and the binary one."""

import pylibmc
import pytest
from harness import PATIENCE_SECONDS

NEAR_LIMIT = 2**20 - 512
OVER_LIMIT = 2**20 + 1


@pytest.fixture(params=["text", "binary"])
def client(server, request):
    behaviors = {"cas": True, "tcp_nodelay": True, "receive_timeout": 10**6 * PATIENCE_SECONDS, "send_timeout": 10**6 * PATIENCE_SECONDS}
    client = pylibmc.Client([f"127.0.0.1:{server.port}"], binary=request.param == "binary", behaviors=behaviors)
    client.flush_all()
    yield client
    client.disconnect_all()


def test_stores(client):
    assert client.set("k", "v")
    assert client.get("k") == "v"
    assert not client.add("k", "w")
    assert client.replace("k", {"an": ["object", 1.5]})
    assert client.get("k") == {"an": ["object", 1.5]}
    assert client.set("s", b"b") and client.append("s", b"c") and client.prepend("s", b"a")
    assert client.get("s") == b"abc"
    assert client.delete("k")
    assert not client.delete("k")
    assert client.get("k") is None


def test_cas(client):
    client.set("k", 1)
    value, token = client.gets("k")
    assert value == 1
    assert client.cas("k", 2, token)
    assert not client.cas("k", 3, token)
    assert client.get("k") == 2


def test_counts(client):
    client.set("n", 41)
    assert client.incr("n") == 42
    assert client.decr("n", 100) == 0
    with pytest.raises(pylibmc.NotFound):
        client.incr("absent")


def test_many(client):
    values = {f"key{i}": "x" * i for i in range(500)}
    assert client.set_multi(values) == []
    assert client.get_multi(list(values) + ["absent"]) == values
    assert client.delete_multi(list(values))
    assert client.get_multi(list(values)) == {}


def test_large_values(client):
    data = b"z" * NEAR_LIMIT
    assert client.set("large", data)
    assert client.get("large") == data
    with pytest.raises(pylibmc.Error):
        client.set("large", b"x" * OVER_LIMIT)


def test_expiry(client, gone):
    assert client.set("short", "v", time=1)
    assert client.set("doomed", "v", time=2)
    assert client.set("long", "v", time=1000)
    for key in ("short", "doomed"):
        gone(lambda: client.get(key))
    assert client.get("long") == "v"


@pytest.mark.parametrize("client", ["text"], indirect=True)
def test_touch(client, gone, rescue):
    """Behind a touch in the binary protocol this client loses step with the server."""
    assert client.set("touched", "v", time=1000)
    assert client.touch("touched", 1)
    rescue(lambda seconds: client.set("rescued", "v", time=seconds), lambda seconds: client.touch("rescued", seconds))
    assert not client.touch("absent", 1)
    assert client.set("doomed", "v", time=4)
    for key in ("touched", "doomed"):
        gone(lambda: client.get(key))
    assert client.get("rescued") == "v"
