"""What holds for memcached must hold for Ebbtide: every test runs against both, on a server of its own."""

import time

import pytest
from harness import EBBTIDE, MEMCACHED, Server

BINARIES = {"memcached": MEMCACHED, "ebbtide": EBBTIDE}
PATIENCE_SECONDS = 20


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
