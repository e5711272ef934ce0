"""The servers that the tests share, one pair for each module."""

import pytest

from harness import EBBTIDE, MEMCACHED, Server


@pytest.fixture(scope="module")
def ebbtide():
    with Server(EBBTIDE, "-m", "64") as server:
        yield server


@pytest.fixture(scope="module")
def memcached():
    with Server(MEMCACHED, "-m", "64") as server:
        yield server


@pytest.fixture(scope="module", params=["memcached", "ebbtide"])
def either(request):
    """What holds for memcached must hold for Ebbtide: the test runs against both."""
    return request.getfixturevalue(request.param)
