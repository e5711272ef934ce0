"""The package as its users see it."""

import asyncio
import threading
import time

import pytest

import ebbtide


@pytest.fixture
def cache():
    with ebbtide.Cache("16m") as cache:
        yield cache


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


def test_keys_are_text_or_any_bytes(cache):
    cache.set("é", b"text")
    assert cache.get("é".encode()) == b"text"
    cache.set(b"\xff\x00", bytearray(b"bytes"))
    assert cache.get(memoryview(b"\xff\x00")) == b"bytes"
    with pytest.raises(TypeError, match="int"):
        cache.get(5)
    with pytest.raises(TypeError, match="str"):
        cache.set("key", "text")


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
    assert found > 5_000


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


def test_a_key_of_a_call_is_text_or_bytes(cache):
    @ebbtide.memoize(cache, key=lambda number: number)
    def load(number):
        return number

    with pytest.raises(TypeError, match="key= of .*load returned int: str or bytes"):
        load(7)


def test_a_write_that_waits_releases_the_interpreter():
    """An edit keeps the memory of its value from reuse. A write that needs this memory waits until the edit ends."""
    with ebbtide.Cache("8m", max_value="2m") as cache:
        words = cache.words("words")
        words.create([1])
        is_editing, may_end = threading.Event(), threading.Event()

        def edit(values):
            is_editing.set()
            may_end.wait(60)
            return values

        editor = threading.Thread(target=words.edit, args=(edit,))
        editor.start()
        assert is_editing.wait(60)
        ends = threading.Timer(0.3, may_end.set)
        ends.start()
        # With the interpreter lock the timer could not run, and a write would fail after its bound.
        for number in range(40):
            cache.set(f"key {number}", bytes(1 << 20))
        assert may_end.is_set(), "no write had to wait"
        editor.join()
        ends.join()
