"""What holds for memcached must hold for Ebbtide: every test runs against both, on a server of its own."""

import time

import pytest
from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, Server

# The life of a key that a touch makes longer. Servers may end a life a second early.
RESCUE_SECONDS = 4
BINARIES = {"memcached": MEMCACHED, "ebbtide": EBBTIDE}


@pytest.fixture(scope="module", params=BINARIES)
def server(request):
    with Server(BINARIES[request.param], "-m", "64") as server:
        yield server


@pytest.fixture
def gone():
    """Polls until `read` gives nothing."""

    def poll(read):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while read() is not None:
            assert time.monotonic() < deadline, "it did not expire"
            time.sleep(0.05)

    return poll


@pytest.fixture
def rescue():
    """Stores a key for a short time and touches it for longer, again if a stall ended its life in between."""

    def repeat(store, touch):
        while True:
            started = time.monotonic()
            assert store(RESCUE_SECONDS)
            if touch(1000):
                return
            assert time.monotonic() - started > RESCUE_SECONDS - 2, "the touch finds the key while it lives"

    return repeat
