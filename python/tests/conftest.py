"""Caches of the tests."""

import gc
import threading

import pytest

import ebbtide


@pytest.fixture
def cache():
    # Expected errors of the test before hold its cache, and valgrind has address space for three.
    gc.collect()
    with ebbtide.Cache("16m") as cache:
        yield cache


@pytest.fixture
def held():
    """A cache of 8 MiB, and an event. Until it is set an edit keeps memory from reuse: a write that needs it waits."""
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
        yield cache, may_end
        may_end.set()
        editor.join()
