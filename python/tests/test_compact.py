"""Compact pools and negative results, as users of the package see them."""

import pytest

import ebbtide
from ebbtide import NEGATIVE


@pytest.fixture
def cache():
    with ebbtide.Cache("16m") as cache:
        yield cache


def test_a_value_replaces_a_negative_result(cache):
    pool = cache.add_compact_pool("tiny", key=4, value=4, max="1m")
    assert pool.get("user") is None and pool.get("user", 5) == 5 and pool.name == "tiny"
    assert pool.set_negative("user")
    assert pool.get("user") is NEGATIVE and not NEGATIVE and repr(NEGATIVE) == "ebbtide.NEGATIVE"
    pool.set("user", b"four")
    assert pool.get("user") == b"four" and "user" in pool and len(pool) == 1
    assert not pool.delete_negative("user")
    pool.set_negative("none")
    assert pool.get_many(["user", "none", "gone"]) == {"user": b"four", "none": NEGATIVE}
    assert pool.delete_negative("none") and pool.delete("user") and not pool.delete("user")
    pool.set("user", b"four")
    pool.clear()
    assert pool.get("user") is None
    stats = pool.stats()
    assert stats["negative_hits"] == 2 and stats["capacity"] > 1000 and stats["negative_inserts"] == 2


def test_a_late_answer_hides_no_object(cache):
    pool = cache.add_compact_pool("absent", key=4)
    ticket = pool.ticket("user")
    pool.delete_negative("user")
    assert not pool.set_negative("user", since=ticket) and pool.get("user") is None
    assert pool.set_negative("user", since=pool.ticket("user")) and pool.get("user") is NEGATIVE


def test_what_a_compact_pool_cannot_hold_is_refused(cache):
    pool = cache.add_compact_pool("tiny", key=4, value=4)
    with pytest.raises(ebbtide.Error, match="the key has 5 bytes"):
        pool.set("users", b"four")
    with pytest.raises(ebbtide.Error, match="TTL"):
        pool.set("user", b"four", ttl=5)
    with pytest.raises(ebbtide.ConfigurationError, match="key 100"):
        cache.add_compact_pool("long", key=100, value=29)
    with pytest.raises(ebbtide.Error, match="use compact_pool"):
        cache.pool("tiny")
    with pytest.raises(ebbtide.UnknownPool):
        cache.compact_pool("none")
    cache.add_compact_pool("lives", key=4, ttl=True).set_negative("user", ttl=5)
    pool.set_bounds("1m", "1m")
    cache.remove_pool("tiny")
    with pytest.raises(ebbtide.UnknownPool):
        pool.set("user", b"four")
    lives = cache.compact_pool("lives")
    cache.close()
    with pytest.raises(ebbtide.Closed):
        lives.get("user")
