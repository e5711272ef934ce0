"""Django's cache, with its backends on pymemcache and on pylibmc."""

import django
import pylibmc
import pymemcache
import pytest
from harness import PATIENCE_SECONDS
from django.conf import settings
from django.core.cache import caches

BACKENDS = {"pymemcache": "PyMemcacheCache", "pylibmc": "PyLibMCCache"}
NEAR_LIMIT = 2**20 - 512
OVER_LIMIT = 2**20 + 1


@pytest.fixture(params=BACKENDS)
def cache(server, request):
    options = {"timeout": PATIENCE_SECONDS, "connect_timeout": PATIENCE_SECONDS} if request.param == "pymemcache" else {}
    configured = {
        "BACKEND": f"django.core.cache.backends.memcached.{BACKENDS[request.param]}",
        "LOCATION": f"127.0.0.1:{server.port}",
        "KEY_PREFIX": "site",
        "OPTIONS": options,
    }
    if not settings.configured:
        settings.configure()
        django.setup()
    caches.settings["default"] = configured
    # The connection handler keeps one cache for each name and thread.
    cache = caches.create_connection("default")
    cache.clear()
    yield cache
    cache.close()


def test_stores(cache):
    assert cache.get("k") is None
    assert cache.get("k", "default") == "default"
    cache.set("k", {"an": ["object", 1.5]})
    assert cache.get("k") == {"an": ["object", 1.5]}
    assert not cache.add("k", "w")
    assert cache.delete("k")
    assert not cache.delete("k")
    assert cache.add("k", "w")
    assert "k" in cache and "absent" not in cache
    assert cache.get_or_set("computed", lambda: "value") == "value"
    assert cache.get("computed") == "value"
    cache.set("none", None)
    assert cache.get("none", "default") is None


def test_counts(cache):
    cache.set("n", 9)
    assert cache.incr("n") == 10
    assert cache.decr("n", 3) == 7
    assert cache.get("n") == 7
    with pytest.raises(ValueError):
        cache.incr("absent")


def test_many(cache):
    values = {f"key{i}": f"value{i}" for i in range(500)}
    assert cache.set_many(values) == []
    assert cache.get_many([*values, "absent"]) == values
    cache.delete_many(values)
    assert cache.get_many(values) == {}


def test_versions_and_prefixes(cache):
    cache.set("k", "one", version=1)
    cache.set("k", "two", version=2)
    assert (cache.get("k", version=1), cache.get("k", version=2)) == ("one", "two")
    assert cache.incr_version("k", version=2) == 3
    assert cache.get("k", version=3) == "two"


def test_values(cache):
    data = bytes(range(256)) * 4 + b"\r\nEND\r\n"
    cache.set("k", data)
    assert cache.get("k") == data
    large = bytes(i * 31 // 7 % 256 for i in range(NEAR_LIMIT - 512))
    cache.set("large", large)
    assert cache.get("large") == large


def test_a_refused_value_leaves_nothing_behind(cache):
    cache.set("large", "small")
    try:
        cache.set("large", b"x" * OVER_LIMIT)
    except (pymemcache.MemcacheServerError, pylibmc.TooBig):
        pass
    assert cache.get("large") is None


def test_expiry(cache, gone):
    cache.set("short", "v", timeout=1)
    cache.set("long", "v", timeout=1000)
    cache.set("forever", "v", timeout=None)
    cache.set("touched", "v", timeout=1000)
    cache.set("gone", "v", timeout=0)
    assert cache.get("gone") is None
    assert cache.touch("touched", 1)
    assert not cache.touch("absent", 1)
    for key in ("short", "touched"):
        gone(lambda: cache.get(key))
    assert cache.get("long") == "v"
    assert cache.get("forever") == "v"
