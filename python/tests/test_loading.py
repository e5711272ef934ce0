"""Loads and remembered results: how often a function is called, and for whom."""

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import time
import warnings
import weakref

import pytest

import ebbtide


def in_threads(count, function):
    """The results of `function(number)`, called by these threads at one time."""
    results, start = [None] * count, threading.Barrier(count)

    def run(number):
        start.wait(60)
        results[number] = function(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    return results


def test_a_result_forgotten_while_loading_is_dropped(cache):
    numbers, is_loading, may_end = iter((1, 2)), threading.Event(), threading.Event()

    @ebbtide.memoize(cache)
    def load():
        number = next(numbers)
        if number == 1:
            is_loading.set()
            assert may_end.wait(60)
        return number

    older = []
    thread = threading.Thread(target=lambda: older.append(load()))
    thread.start()
    assert is_loading.wait(60)
    load.forget()
    may_end.set()
    thread.join(60)
    assert older == [1] and load() == 2 and load() == 2


def test_a_result_that_cannot_be_pickled_is_returned(cache):
    calls = []

    @ebbtide.memoize(cache)
    def load():
        calls.append(1)
        return lambda: 7

    @ebbtide.memoize(cache)
    async def fetch():
        return threading.Lock()

    with pytest.warns(RuntimeWarning, match="a result of .*load is not remembered"):
        assert load()() == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load()() == 7 and calls == [1, 1]
    with pytest.warns(RuntimeWarning, match="fetch"):
        assert not asyncio.run(fetch()).locked()
    assert len(cache) == 0


def test_threads_missing_one_key_call_once(cache):
    calls = []

    @ebbtide.memoize(cache)
    def load(user):
        calls.append(user)
        time.sleep(0.2)
        return user * 2

    assert in_threads(8, lambda number: load(21)) == [42] * 8 and calls == [21]


def test_tasks_and_threads_share_a_load(cache):
    calls = []

    @ebbtide.memoize(cache, key=lambda user: user)
    async def load(user):
        calls.append(user)
        await asyncio.sleep(0.2)
        return user * 2

    async def many():
        return await asyncio.gather(*(load("ab") for _ in range(8)))

    assert in_threads(2, lambda number: asyncio.run(many())) == [["abab"] * 8] * 2 and calls == ["ab"]


def test_an_error_releases_those_who_wait(cache):
    calls = []

    @ebbtide.memoize(cache)
    def load():
        calls.append(1)
        time.sleep(0.05)
        if len(calls) == 1:
            raise OSError("down")
        return "up"

    def call(number):
        try:
            return load()
        except OSError:
            return "failed"

    assert sorted(in_threads(8, call)) == ["failed"] + ["up"] * 7 and len(calls) == 2


def test_a_wait_for_a_load_has_a_bound():
    with ebbtide.Cache("16m", load_timeout=0.2) as cache:
        is_loading, may_end = threading.Event(), threading.Event()

        @ebbtide.memoize(cache)
        def load():
            if is_loading.is_set():
                return "second"
            is_loading.set()
            assert may_end.wait(60)
            return "first"

        answers = []
        thread = threading.Thread(target=lambda: answers.append(load()))
        thread.start()
        assert is_loading.wait(60)
        assert load() == "second"
        may_end.set()
        thread.join(60)
        assert answers == ["first"]


def test_a_recursive_load_does_not_deadlock(cache):
    @ebbtide.memoize(cache, key=lambda *_: "one key")
    def load(depth):
        return load(depth - 1) + 1 if depth else 0

    @ebbtide.memoize(cache, key=lambda *_: "one key")
    async def fetch(depth):
        return await fetch(depth - 1) + 1 if depth else 0

    assert load(3) == 3 and asyncio.run(fetch(3)) == 3
    with pytest.raises(ebbtide.RecursiveLoad):
        cache.get_or_load("key", lambda: cache.get_or_load("key", bytes))


def test_a_cancelled_task_leaves_its_load_to_another(cache):
    calls = []

    @ebbtide.memoize(cache)
    async def load():
        calls.append(1)
        await asyncio.sleep(60 if len(calls) == 1 else 0)
        return "loaded"

    async def run():
        first, second = asyncio.create_task(load()), asyncio.create_task(load())
        await asyncio.sleep(0.05)
        first.cancel()
        return await asyncio.wait_for(second, 30)

    assert asyncio.run(run()) == "loaded" and len(calls) == 2


def test_waiting_for_memory_does_not_block_the_loop(held):
    cache, may_end = held

    @ebbtide.memoize(cache)
    async def load(number):
        return bytes(1 << 20)

    async def fill():
        ticks, loads = 0, asyncio.ensure_future(load_all())
        while not loads.done():
            await asyncio.sleep(0.01)
            ticks += 1
            if ticks == 30:
                may_end.set()
        await loads
        return ticks

    async def load_all():
        for number in range(40):
            await load(number)

    assert asyncio.run(fill()) >= 30 and may_end.is_set()


def test_values_are_loaded_once_and_none_cached(cache):
    calls = []

    def load(answer):
        calls.append(answer)
        return answer

    for answer in (b"value", b"another"):
        assert cache.get_or_load("key", lambda: load(answer), 60) == b"value"
    for _ in range(2):
        assert cache.get_or_load("absent", lambda: load(None), negative_ttl=60) is None
    assert cache.get("absent") is None and calls == [b"value", None]
    with pytest.raises(ZeroDivisionError):
        cache.get_or_load("failed", lambda: 1 / 0, negative_ttl=60)
    with pytest.raises(ebbtide.KnownFailure, match="failed"):
        cache.get_or_load("failed", lambda: b"value", negative_ttl=60)
    stats = cache.stats()
    assert (stats["loads"], stats["failed_loads"]) == (2, 1)
    with pytest.raises(TypeError, match="str"):
        cache.get_or_load("text", lambda: "text")
    with pytest.raises(ValueError, match="negative_ttl = 0"):
        cache.get_or_load("key", bytes, negative_ttl=0)


def test_coroutines_load_as_functions_do(cache):
    async def value():
        return b"value"

    async def none():
        return None

    async def fail():
        raise OSError("down")

    async def run():
        assert await cache.get_or_load_async("key", value) == b"value" == await cache.get_or_load_async("key", none)
        assert await cache.get_or_load_async("absent", none, negative_ttl=60) is None
        assert await cache.get_or_load_async("absent", value) is None
        with pytest.raises(OSError, match="down"):
            await cache.get_or_load_async("failed", fail, negative_ttl=60)
        with pytest.raises(ebbtide.KnownFailure):
            await cache.get_or_load_async("failed", value)

    asyncio.run(run())


def test_stale_results_are_returned_while_one_loads(cache):
    calls, may_end = [], threading.Event()

    @ebbtide.memoize(cache, ttl=1, stale_while_revalidate=60)
    def load():
        calls.append(1)
        if len(calls) > 1:
            assert may_end.wait(60)
        return len(calls)

    assert load() == 1
    deadline = time.monotonic() + 30
    reload = threading.Thread(target=load)
    while len(calls) == 1:
        assert time.monotonic() < deadline
        if not reload.is_alive():
            reload = threading.Thread(target=load)
            reload.start()
        time.sleep(0.05)
    assert load() == 1 and len(calls) == 2
    may_end.set()
    reload.join(60)
    assert load() == 2


def test_loads_with_flash_are_single(tmp_path):
    with ebbtide.Cache("16m", flash=tmp_path / "flash", flash_size="128m") as cache:
        calls = []

        @ebbtide.memoize(cache)
        async def load(number):
            calls.append(number)
            return bytes(4000)

        async def all_of():
            return [len(await load(number)) for number in range(8000)]

        assert asyncio.run(all_of()) == [4000] * 8000 == asyncio.run(all_of())
        assert len(calls) < 13_000
        assert in_threads(4, lambda number: cache.get_or_load("key", lambda: b"value")) == [b"value"] * 4


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_interrupt_is_not_remembered_as_a_failure(cache, kind):
    def load():
        raise kind

    async def load_async():
        raise kind

    with pytest.raises(kind):
        cache.get_or_load("key", load, negative_ttl=60)
    with pytest.raises(kind):
        asyncio.run(cache.get_or_load_async("key", load_async, negative_ttl=60))
    assert cache.get_or_load("key", lambda: b"value", negative_ttl=60) == b"value"


def test_an_interrupt_releases_those_who_wait(cache):
    calls = []

    def load():
        calls.append(1)
        time.sleep(0.05)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return b"value"

    def call(number):
        try:
            return cache.get_or_load("key", load)
        except KeyboardInterrupt:
            return b"interrupted"

    assert sorted(in_threads(4, call)) == [b"interrupted"] + [b"value"] * 3 and len(calls) == 2


def test_a_waiting_task_ends_with_its_loop(cache):
    is_loading, may_end = threading.Event(), threading.Event()

    def load():
        is_loading.set()
        assert may_end.wait(60)
        return b"value"

    thread = threading.Thread(target=cache.get_or_load, args=("key", load))
    thread.start()
    assert is_loading.wait(60)
    loop = asyncio.new_event_loop()
    task = loop.create_task(cache.get_or_load_async("key", None))
    loop.run_until_complete(asyncio.sleep(0.05))
    waiting = weakref.ref(task)
    loop.close()
    del task, loop
    may_end.set()
    thread.join(60)
    # The load has ended: nobody wakes the task any more.
    deadline = time.monotonic() + 60
    while waiting() is not None:
        assert time.monotonic() < deadline, "a cycle keeps the task"
        gc.collect()
        time.sleep(0.01)


def test_a_load_keeps_its_waiting_task_alive(cache):
    is_loading, may_end, found = threading.Event(), threading.Event(), []

    def load():
        is_loading.set()
        assert may_end.wait(60)
        return b"value"

    async def wait():
        found.append(await cache.get_or_load_async("key", None))

    async def run():
        waiting = weakref.ref(asyncio.create_task(wait()))
        await asyncio.sleep(0.05)
        gc.collect()
        may_end.set()
        while waiting() is not None and not found:
            await asyncio.sleep(0.01)

    thread = threading.Thread(target=cache.get_or_load, args=("key", load))
    thread.start()
    assert is_loading.wait(60)
    asyncio.run(run())
    thread.join(60)
    assert found == [b"value"]


def test_a_task_may_outlive_the_starting_load(cache):
    calls, started = [], []

    @ebbtide.memoize(cache)
    async def load(number):
        calls.append(number)
        if number == 1:
            started.append(asyncio.create_task(again()))
        return number

    async def again():
        await asyncio.sleep(0.05)
        return [await load(1), await load(2), await load(2)]

    async def run():
        assert await load(1) == 1
        return await started[0]

    assert asyncio.run(run()) == [1, 2, 2] and calls == [1, 2]


def test_a_program_may_end_during_a_wakeup():
    """A thread that would take the lock of an ended interpreter aborts the process."""
    program = """
    import threading, time
    import ebbtide

    is_waking = threading.Event()

    def wake():
        is_waking.set()
        deadline = time.monotonic() + 0.5
        while time.monotonic() < deadline:
            time.sleep(0.0001)

    cache = ebbtide.Cache("8m")
    leader, waiter = (cache._begin_load("key", None, None, None) for _ in range(2))
    assert (leader.poll(wake)[0], waiter.poll(wake)[0]) == ("load", "wait")
    leader.cancel()
    is_waking.wait()
    """
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=environment, check=True, timeout=60)
