"""The package as its users see it."""

import array
import asyncio
import threading
import time

import pytest

import ebbtide


def test_a_cache_is_like_a_dict(cache):
    cache["key"] = b"value"
    assert cache["key"] == b"value" and cache.get("key") == b"value"
    assert "key" in cache and len(cache) == 1
    del cache["key"]
    assert "key" not in cache and cache.get("key") is None and cache.get("key", 5) == 5
    with pytest.raises(KeyError, match="key"):
        cache["key"]
    with pytest.raises(KeyError):
        del cache["key"]


def test_entries_are_iterated_as_those_of_a_dict(cache):
    entries = {f"key {number}".encode(): str(number).encode() for number in range(1000)}
    cache.update(entries)
    assert set(cache) == set(cache.keys()) == set(entries) and dict(cache.items()) == entries
    assert sorted(cache.values()) == sorted(entries.values()) and len(cache) == len(entries)
    # What is removed meanwhile may be met or not; all else is met.
    for number, key in enumerate(cache):
        assert key in entries
        if number == 0:
            del cache["key 5" if key == b"key 7" else "key 7"]
    iterations = [iter(cache) for _ in range(8)]
    with pytest.raises(ebbtide.Error, match="8 scans"):
        cache.keys()
    assert len(iterations) == 8


def test_entries_are_changed_as_those_of_a_dict(cache):
    cache.update([("a", b"1"), (b"b", b"2")], ttl=60)
    cache.update({"c": b"3"})
    assert cache.pop("a") == b"1" and "a" not in cache and cache.pop("a", None) is None and cache.pop("a", 5) == 5
    with pytest.raises(KeyError, match="a"):
        cache.pop("a")
    with pytest.raises(TypeError, match="2 defaults"):
        cache.pop("a", 1, 2)
    assert cache.setdefault("b", b"other") == b"2" and cache.setdefault("d", b"4", ttl=60) == b"4" == cache["d"]
    with pytest.raises(ValueError):
        cache.update("text")
    assert dict(cache.items()) == {b"b": b"2", b"c": b"3", b"d": b"4"}


def test_one_thread_pops_an_entry(cache):
    popped = []
    cache.update({f"key {number}": b"first" for number in range(2000)})

    def pop():
        popped.extend(number for number in range(2000) if cache.pop(f"key {number}", None) is not None)

    threads = [threading.Thread(target=pop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(popped) == list(range(2000)) and len(cache) == 0


def test_keys_are_text_or_any_bytes(cache):
    cache.set("é", b"text")
    assert cache.get("é".encode()) == b"text"
    cache.set(b"\xff\x00", bytearray(b"bytes"))
    assert cache.get(memoryview(b"\xff\x00")) == b"bytes"
    with pytest.raises(TypeError, match="int"):
        cache.get(5)
    with pytest.raises(TypeError, match="str"):
        cache.set("key", "text")


def test_values_are_any_numbers_in_one_piece(cache):
    numbers = array.array("i", [1, -2, 3])
    for value in (numbers, memoryview(numbers), memoryview(numbers).cast("B").cast("i", [3, 1])):
        cache.set("key", value)
        assert cache.get("key") == numbers.tobytes()
    cache.set("empty", array.array("d"))
    assert cache.get("empty") == b"" and cache.compare_and_swap("key", numbers, array.array("d", [0.5]))
    assert array.array("d", cache.get("key")).tolist() == [0.5]
    assert cache.get_or_load("loaded", lambda: numbers) == numbers.tobytes()
    with pytest.raises(ValueError, match=r"those of this memoryview do not: .* tobytes\(\)"):
        cache.set("key", memoryview(numbers)[::2])
    cache.set("key", memoryview(numbers)[::2].tobytes())
    cache.set("bytes", memoryview(b"abcd")[::2])
    assert cache.get("key") == array.array("i", [1, 3]).tobytes() and cache.get("bytes") == b"ac"
    with pytest.raises(TypeError, match="a key is str or bytes, not array"):
        cache.get(numbers)


def test_several_keys_at_once(cache):
    cache.set_many({"a": b"1", "b": b"2"})
    assert cache.get_many(["a", "b", "c"]) == {"a": b"1", "b": b"2"}
    assert dict(cache.items()) == {b"a": b"1", b"b": b"2"}
    cache.clear()
    assert cache.get_many(["a", "b"]) == {}


def test_parts_of_a_value_are_read(cache):
    cache["key"] = b"0123456789"
    assert cache.get_range("key", 2, 3) == b"234"
    assert cache.get_range("key", 8, 100) == b"89" and cache.get_range("key", 10, 1) == b""
    assert cache.get_range("absent", 0, 1) is None
    with pytest.raises(OverflowError):
        cache.get_range("key", -1, 1)


def test_writes_depend_on_the_present_value(cache):
    assert cache.add("key", b"first", ttl=60) and not cache.add("key", b"second")
    assert not cache.compare_and_swap("key", b"second", b"third")
    assert cache.compare_and_swap("key", b"first", bytearray(b"third"), ttl=60)
    assert cache["key"] == b"third" and not cache.compare_and_swap("absent", b"", b"new")


def test_numbers_count(cache):
    assert cache.increment("n") is None
    cache["n"] = b"41"
    assert cache.increment("n") == 42 and cache.decrement("n", 50) == 0
    cache["word"] = b"text"
    with pytest.raises(ebbtide.NotNumeric):
        cache.increment("word")


def test_lives_are_seconds(cache):
    cache.set("key", b"value", ttl=1000)
    assert cache.touch("key", 2000) and not cache.touch("absent", 5)
    for wrong in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="ttl"):
            cache.set("key", b"value", ttl=wrong)


def test_what_cannot_work_is_refused_by_name(cache):
    for write in (cache.set, cache.add, cache.setdefault):
        with pytest.raises(ValueError, match="the key has 0 bytes"):
            write("", b"")
    with pytest.raises(ebbtide.TooLarge, match="300"):
        cache.set("k" * 300, b"")
    with pytest.raises(ebbtide.TooLarge, match="max_value"):
        cache.set("key", bytes(2 << 20))
    with pytest.raises(ValueError, match="memory = many"):
        ebbtide.Cache("many")
    with pytest.raises(ValueError, match="none such"):
        ebbtide.Cache(policy="none such")
    with pytest.raises(ebbtide.ConfigurationError):
        ebbtide.Cache(1)
    with pytest.raises(ValueError, match="flash_size"):
        ebbtide.Cache(flash="/nowhere")


def test_pools_are_apart(cache):
    users = cache.add_pool("users", min="4m")
    users["key"] = b"user"
    assert "key" not in cache and cache.pool("users")["key"] == b"user" and users.name == "users"
    assert cache.pools() == ["default", "users"]
    cache.remove_pool("users")
    with pytest.raises(ebbtide.UnknownPool):
        users.set("key", b"value")
    with pytest.raises(ebbtide.UnknownPool):
        cache.pool("users")


def test_bounds_of_a_pool_change(cache):
    users = cache.add_pool("users", min="4m", max="4m")
    users.set_bounds("5m", 5 << 20)
    deadline = time.monotonic() + 60
    while users.stats()["memory_limit_bytes"] != 5 << 20:
        assert time.monotonic() < deadline, "memory moves in the background"
        time.sleep(0.01)
    with pytest.raises(ebbtide.ConfigurationError):
        users.set_bounds("1g", "1g")


def test_a_memory_file_survives_a_restart(tmp_path):
    with ebbtide.Cache("16m", memory_file=tmp_path / "memory") as cache:
        cache["key"] = b"value"
    with pytest.raises(ebbtide.Closed):
        cache.get("key")
    cache.close()
    with ebbtide.Cache("16m", memory_file=tmp_path / "memory") as cache:
        assert cache["key"] == b"value"


def test_flash_holds_what_memory_does_not(tmp_path):
    with ebbtide.Cache("16m", flash=tmp_path / "flash", flash_size="128m") as cache:
        for i in range(10_000):
            cache.set(f"key{i}", bytes(4000))
        found = sum(cache.get(f"key{i}") is not None for i in range(10_000))
        stats, users = cache.stats(), cache.add_pool("users").stats()
    assert found > 5_000
    assert 0 < stats["flash_hits"] < found and stats["flash_used_bytes"] > 4000 * stats["flash_hits"]
    assert stats["flash_inserts"] > 5_000 and stats["flash_has_failed"] == 0
    # Of all pools: the others have evicted for the new one.
    assert users["flash_hits"] == 0 and users["flash_inserts"] >= stats["flash_inserts"]


def test_only_caches_with_flash_count_it(cache):
    assert not any(name.startswith("flash_") for name in cache.stats())


def test_threads_share_a_cache(cache):
    cache["count"] = b"0"

    def count():
        for _ in range(1000):
            cache.increment("count")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache["count"] == b"4000"


def test_results_are_remembered(cache):
    calls = []

    @ebbtide.memoize(cache, ttl=60)
    def load(user, detail=False):
        calls.append(user)
        return {"user": user, "detail": detail}

    assert load(1) == load(1) == {"user": 1, "detail": False}
    assert load(1, detail=True)["detail"] and calls == [1, 1]
    assert load.forget(1) and load(1) and calls == [1, 1, 1]


def test_results_of_coroutines_are_remembered(cache):
    calls = []

    @ebbtide.memoize(cache, key=lambda user: f"user {user}")
    async def load(user):
        calls.append(user)
        await asyncio.sleep(0)
        return None

    async def twice():
        return await load(1), await load(1)

    assert asyncio.run(twice()) == (None, None) and calls == [1]


def test_statistics_count(cache):
    cache["key"] = b"value"
    cache.get("key")
    cache.get("absent")
    stats = cache.stats()
    assert (stats["hits"], stats["misses"], stats["entries"], stats["hit_ratio"]) == (1, 1, 1, 0.5)
    cache.resize("32m")


def test_statistics_of_a_cache_sum_all_pools(cache):
    users, negatives = cache.add_pool("users"), cache.add_compact_pool("negatives", key=4)
    users["key"] = b"value"
    negatives.set_negative("none")
    assert users.get("key") and not negatives.get("none") and cache.get("key") is None
    names = ("hits", "negative_hits", "misses", "hit_ratio")
    assert [cache.stats()[name] for name in names] == [1, 1, 1, 2 / 3]
    assert [cache.pool("default").stats()[name] for name in names] == [0, 0, 1, 0]
    assert users.stats()["memory_limit_bytes"] < cache.stats()["memory_limit_bytes"]


def test_only_unused_entries_reach_time_to_idle():
    with ebbtide.Cache("16m", time_to_idle=2) as cache:
        cache.update({"used": b"1", "idle": b"2"})
        deadline = time.monotonic() + 60
        while "idle" in cache:
            assert time.monotonic() < deadline and cache["used"] == b"1"
            time.sleep(0.2)
        assert cache["used"] == b"1"
    with pytest.raises(ValueError, match="time_to_idle"):
        ebbtide.Cache("16m", time_to_idle=0)


def test_a_result_that_the_cache_refuses_is_returned():
    with ebbtide.Cache("16m", max_value="1k") as cache:
        calls = []

        @ebbtide.memoize(cache)
        def load(length):
            calls.append(length)
            return bytes(length)

        @ebbtide.memoize(cache)
        async def fetch(length):
            calls.append(length)
            return bytes(length)

        assert len(load(5000)) == len(load(5000)) == 5000 and calls == [5000, 5000]
        assert len(asyncio.run(fetch(5000))) == 5000
        assert load(5) == load(5) == bytes(5) and calls == [5000, 5000, 5000, 5]


def test_long_keys_of_calls_are_hashed(cache):
    calls = []

    @ebbtide.memoize(cache, key=lambda user: user)
    def load(user):
        calls.append(user)
        return user

    first, second = "u" * 400 + "1", "u" * 400 + "2"
    assert (load(first), load(second), load(first)) == (first, second, first) and calls == [first, second]
    assert load.forget(first) and load(first) == first and len(calls) == 3
    assert all(len(key) <= 255 for key, _ in cache.items())


def test_functions_with_long_names_are_told_apart(cache):
    def named(name):
        def load(number):
            return name

        load.__qualname__ = name
        return ebbtide.memoize(cache)(load)

    names = ["f" * 300 + "1", "f" * 300 + "2"]
    assert [named(name)(7) for name in names] == names


def test_call_keys_must_be_text_or_bytes(cache):
    @ebbtide.memoize(cache, key=lambda number: number)
    def load(number):
        return number

    with pytest.raises(TypeError, match="key= of .*load returned int: str or bytes"):
        load(7)


def test_a_write_that_waits_releases_the_interpreter(held):
    cache, may_end = held
    ends = threading.Timer(0.3, may_end.set)
    ends.start()
    # With the interpreter lock the timer could not run, and a write would fail after its bound.
    for number in range(40):
        cache.set(f"key {number}", bytes(1 << 20))
    assert may_end.is_set(), "no write had to wait"
    ends.join()
