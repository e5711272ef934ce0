"""Caches over a fork: a child has its own, and an error for one that it has inherited."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")

HEAD = """
import asyncio, gc, os, signal, sys
import ebbtide

def in_child(function):
    child = os.fork()
    if child == 0:
        # A child that waits for a thread of its parent ends by this.
        signal.alarm(60)
        try:
            function()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def run(folder, body):
    environment = {"PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-c", HEAD + textwrap.dedent(body)]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr


def test_a_forked_process_wakes_its_own_tasks(tmp_path):
    """Those that wait for a load of another task, and those whose `load_timeout` is over."""
    run(
        tmp_path,
        """
        def use():
            with ebbtide.Cache("16m", load_timeout=0.3) as cache:
                async def load():
                    await asyncio.sleep(0.1)
                    return b"value"

                async def never():
                    await asyncio.sleep(60)

                async def wait():
                    assert await asyncio.gather(*(cache.get_or_load_async("key", load) for _ in range(2))) == [b"value"] * 2
                    loading = asyncio.create_task(cache.get_or_load_async("slow", never))
                    await asyncio.sleep(0)
                    try:
                        await cache.get_or_load_async("slow", load)
                    except ebbtide.LoadTimeout:
                        loading.cancel()
                        return
                    raise AssertionError

                asyncio.run(wait())

        use()
        in_child(lambda: (use(), in_child(use)))
        use()
        """,
    )


def test_an_inherited_cache_is_refused(tmp_path):
    run(
        tmp_path,
        """
        cache = ebbtide.Cache("16m")
        pool, compact = cache.add_pool("users", min="4m"), cache.add_compact_pool("absent", key=3, max="1m")
        cache["key"] = b"value"
        entries, words, negatives = cache.items(), cache.words("words"), cache.with_negatives(compact)

        def use():
            uses = [
                lambda: cache.get("key"), lambda: cache.set("key", b"new"), lambda: pool.get("key"), lambda: len(pool),
                lambda: compact.get("key"), lambda: next(entries), lambda: words.add([1]), lambda: negatives.get("key"),
                lambda: negatives.delete("key"), lambda: cache.stats(), lambda: cache.get_or_load("other", bytes),
                lambda: asyncio.run(cache.get_or_load_async("other", None)), lambda: ebbtide.Profile(cache),
            ]
            for number, use in enumerate(uses):
                try:
                    use()
                except ebbtide.Closed as error:
                    assert "forked" in str(error)
                else:
                    raise AssertionError(number)
            cache.close()

        in_child(use)
        assert cache["key"] == b"value" and len(list(entries)) == 1
        cache.close()
        """,
    )


def test_a_forked_process_leaves_its_parents_files(tmp_path):
    run(
        tmp_path,
        """
        def open_all():
            options = dict(flash="flash", flash_size="64m")
            return [ebbtide.Cache("16m", memory_file="memory"), ebbtide.Cache("16m", **options)]

        caches = open_all()
        for cache in caches:
            cache["key"] = b"value"

        def drop():
            written = lambda: [line for line in open("/proc/self/io") if line.startswith("syscw")]
            before = written()
            for cache in caches:
                cache.close()
            caches.clear()
            del globals()["cache"]
            gc.collect()
            assert written() == before

        in_child(drop)
        for cache in caches:
            assert cache["key"] == b"value"
            cache.close()
        del cache
        caches.clear()
        assert [cache["key"] for cache in open_all()] == [b"value"] * 2
        """,
    )
