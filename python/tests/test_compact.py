"""Compact pools and negative results, as users of the package see them."""

import asyncio
import time

import pytest

import ebbtide
from ebbtide import NEGATIVE


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


@pytest.fixture
def users(cache):
    absent = cache.add_compact_pool("absent", key=4, min="1m", max="1m")

    def has_grown():
        """A growth voids the tickets that were taken before it."""
        if absent.stats()["memory_limit_bytes"] < 1 << 20:
            return False
        ticket = absent.ticket("none")
        time.sleep(0.05)
        return absent.set_negative("none", since=ticket)

    deadline = time.monotonic() + 60
    while not has_grown():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    absent.delete_negative("none")
    return cache.with_negatives(absent)


def test_objects_and_negative_results_are_one_cache(cache, users):
    calls = []

    def load(answer):
        calls.append(answer)
        return answer

    assert users.get("u001") is None and users.get("u001", 5) == 5
    assert users.get_or_load("u001", lambda: load(None)) is NEGATIVE is users.get_or_load("u001", lambda: load(b"late"))
    assert users.get("u001") is NEGATIVE and "u001" in users.negatives and "u001" not in users.objects
    users.set("u001", b"Ada")
    assert users.get("u001") == b"Ada" == users.get_or_load("u001", lambda: load(None)) and len(users.negatives) == 0
    assert users.get_or_load("u002", lambda: load(b"Bob"), ttl=60) == b"Bob" == cache["u002"]
    assert users.delete("u001") and not users.delete("u001") and users.get("u001") is None
    with pytest.raises(ZeroDivisionError):
        users.get_or_load("u003", lambda: 1 / 0)
    assert users.get("u003") is None and calls == [None, b"Bob"]
    assert users.objects.name == "default" and users.negatives.name == "absent"


def test_tasks_load_what_exists_and_what_does_not(users):
    calls = []

    async def load(answer):
        calls.append(answer)
        await asyncio.sleep(0.01)
        return answer

    async def run():
        loads = (users.get_or_load_async("u001", lambda: load(None)) for _ in range(4))
        assert await asyncio.gather(*loads) == [NEGATIVE] * 4
        assert await users.get_or_load_async("u002", lambda: load(b"Bob"), 60) == b"Bob"
        with pytest.raises(ValueError, match="ttl"):
            await users.get_or_load_async("u003", lambda: load(b""), ttl=0)

    asyncio.run(run())
    assert calls == [None, b"Bob"] and users.get("u001") is NEGATIVE and users.get("u002") == b"Bob"


def test_keys_of_another_length_have_no_negative_results(cache, users):
    for refused in (
        lambda: users.set("user 1", b"Ada"),
        lambda: users.delete("user 1"),
        lambda: users.get_or_load("user 1", bytes),
        lambda: asyncio.run(users.get_or_load_async("user 1", None)),
    ):
        with pytest.raises(ebbtide.Error, match="the key has 6 bytes; those of this compact pool have 4"):
            refused()
    assert "user 1" not in cache
    cache.close()
    with pytest.raises(ebbtide.Closed):
        users.get("u001")
