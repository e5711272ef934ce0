"""The servers and the browser that the tests share, one of each for a module."""

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, Server


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


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = ChromeOptions()
    options.binary_location = "/usr/bin/chromium"
    profile = tmp_path_factory.mktemp("profile")
    for flag in [
        "headless",
        "no-sandbox",
        "disable-gpu",
        "disable-quic",
        "disable-dev-shm-usage",
        "disable-background-networking",
        "disable-component-update",
        "disable-sync",
        "no-first-run",
        f"user-data-dir={profile}",
    ]:
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service("/usr/bin/chromedriver"))
    driver.set_page_load_timeout(PATIENCE_SECONDS)
    yield driver
    driver.quit()
