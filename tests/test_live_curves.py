"""The curve of a live server: `/api/curves`, the verdict, and the panel of the dashboard, whose numbers are the JSON's."""

import contextlib
import json
import re
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from harness import EBBTIDE, PATIENCE_SECONDS, Server, free_port
from test_dashboard import Dashboard, plain  # noqa: F401

VALUE_BYTES = 100_000


def look_aside(server, keys, rounds, wait_for_samples):
    """Asks for all keys round and round, and stores what is missed. Answers the share of misses."""
    value, misses = b"v" * VALUE_BYTES, 0
    with server.connect() as connection:
        for _ in range(rounds):
            for number in range(keys):
                if connection.ask(b"get key%d\r\n" % number, b"END\r\n") == b"END\r\n":
                    misses += 1
                    command = b"set key%d 0 0 %d\r\n%s\r\n" % (number, VALUE_BYTES, value)
                    assert connection.ask(command) == b"STORED\r\n"
            # A faster load would fill the buffers of the samples.
            wait_for_samples()
    return misses / (keys * rounds)


def until(found, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (value := found()):
        assert time.monotonic() < deadline, what
        time.sleep(0.1)
    return value


@contextlib.contextmanager
def loaded(*flags):
    """A server of 64 MiB that is asked for 90 MB in a loop, and its admin HTTP."""
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *flags) as server:

        def api(path):
            with urllib.request.urlopen(f"http://{admin}/api/{path}", timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)

        def ticks():
            """The times at which the history got points: samples are taken after each."""
            return [point["time_unix_ms"] for point in api("history")["points"]]

        def wait_for_samples():
            seen = set(ticks())
            until(lambda: len(set(ticks()) - seen) >= 2, "two ticks")

        misses = look_aside(server, 900, 4, wait_for_samples)
        until(lambda: api("curves")["points"] and api("overview")["commands"]["get"]["misses"] == round(misses * 3600), "a curve")
        yield server, api, misses, f"http://{admin}"


@pytest.fixture(scope="module")
def server():
    with loaded() as parts:
        yield parts


def test_the_curve_tells_what_the_loop_needs(server):
    _, api, misses, _ = server
    curve = until(lambda: (found := api("curves"))["measured_miss_ratio"] == pytest.approx(misses, abs=0.01) and found, "the level")
    assert curve["full"] and curve["sample_rate"] == 1 and curve["sampled_keys"] == 900
    # An access is not sampled while the samples of its stripe are taken.
    assert curve["dropped_samples"] < 900 * 4 / 100
    assert curve["present"]["memory_bytes"] == 64 << 20 and curve["present"] in curve["points"]
    assert curve["present"]["miss_ratio"] == pytest.approx(curve["measured_miss_ratio"], abs=1e-6)
    memory = [point["memory_bytes"] for point in curve["points"]]
    assert memory == sorted(memory) and memory[0] == 1 << 20 and memory[-1] == 512 << 20
    assert all(point["low"] <= point["miss_ratio"] <= point["high"] for point in curve["points"])
    # A loop earns nothing before it fits: the hull passes over the cliff, and each MiB on it earns alike.
    cliff = max(curve["cliffs"], key=lambda cliff: cliff["height"])
    assert cliff["from_bytes"] < 64 << 20 < cliff["to_bytes"] and cliff["height"] > 0.2
    hull = [point["memory_bytes"] for point in curve["hull"]]
    assert hull == sorted(hull) and set(hull) < set(memory)
    assert {cliff["from_bytes"], cliff["to_bytes"]} <= set(hull)
    inside = [p for p in curve["points"] if cliff["from_bytes"] <= p["memory_bytes"] < cliff["to_bytes"]]
    assert len({point["marginal_hits_per_mib"] for point in inside}) == 1 and inside[0]["marginal_hits_per_mib"] > 0
    assert curve["points"][-1]["marginal_hits_per_mib"] == 0
    # 128 MiB hold all, but for the first round.
    what_if = api(f"curves?memory={128 << 20}")["what_if"]
    assert what_if["memory_bytes"] == 128 << 20 and curve["present"]["miss_ratio"] - what_if["miss_ratio"] > 0.4


def test_the_verdict_is_the_same_everywhere(server):
    server, api, _, _ = server
    verdict = until(lambda: (text := api("curves")["verdict"]) == api("overview")["verdict"] and text, "one verdict")
    assert re.fullmatch(
        r"full; \d+\.\d % misses; (objects leave after \d+ (s|min|h); )?"
        r"\+16 MiB would save (nothing|\d+\.\d points), -16 MiB would cost (nothing|\d+\.\d points)",
        verdict,
    ), verdict
    assert until(lambda: server.stat("size_verdict", "stats ebbtide") == api("curves")["verdict"], "the statistic")


def test_one_size_of_objects_has_no_entropy(server):
    server, api, _, _ = server
    entropy = until(lambda: api("curves")["miss_entropy"], "the entropy")
    assert entropy["bits"] == 0 and entropy["classes"] == [{"from_bytes": 65536, "share": 1}]
    assert entropy["meaning"].startswith("miss entropy 0.0 bits: nearly all misses are of objects of one size")
    assert until(lambda: server.stat("miss_entropy", "stats ebbtide") == api("curves")["miss_entropy"]["meaning"], "the statistic")


def test_misses_of_four_sizes_have_two_bits():
    """Each pool by itself: what is missed in one has one size, in the other four."""
    admin = f"127.0.0.1:{free_port()}"

    def curve(pool):
        with urllib.request.urlopen(f"http://{admin}/api/curves?pool={pool}", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    with Server(EBBTIDE, "-m", "64", "--admin", admin, "--pool", "one:prefix=one:") as server, server.connect() as connection:
        number, deadline = 0, time.monotonic() + PATIENCE_SECONDS
        while not (curve("default").get("miss_entropy") and curve("one").get("miss_entropy")):
            assert time.monotonic() < deadline, (curve("default"), curve("one"))
            for _ in range(400):
                number += 1
                for key, length in ((f"one:{number}", 300), (f"k{number}", (100, 400, 1600, 6400)[number % 4])):
                    assert connection.ask(b"get %s\r\n" % key.encode(), b"END\r\n") == b"END\r\n"
                    command = b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), length, b"v" * length)
                    assert connection.ask(command) == b"STORED\r\n"
        four, one = curve("default")["miss_entropy"], curve("one")["miss_entropy"]
        assert one["bits"] == 0 and four["bits"] == pytest.approx(2, abs=0.05)
        assert [share["from_bytes"] for share in four["classes"]] == [64, 256, 1024, 4096]
        assert four["meaning"].endswith("pools for keys of different sizes may gain")


@pytest.mark.parametrize(
    "query, reason",
    [(f"memory={text}", b"memory is a whole number of bytes") for text in ("", "x", "-5")]
    + [("size=5", b'"size" is no parameter here; there are: memory, pool'), ("memory=1&memory=2", b"memory is given twice")],
)
def test_other_questions_are_refused(server, query, reason):
    with pytest.raises(urllib.error.HTTPError) as refusal:
        server[1](f"curves?{query}")
    assert refusal.value.code == 400 and reason in refusal.value.read()


def test_without_gets_there_is_no_verdict():
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin) as server:
        with urllib.request.urlopen(f"http://{admin}/api/curves", timeout=PATIENCE_SECONDS) as answer:
            nothing = {"pool": "default", "verdict": None, "points": [], "note": "too few gets were sampled yet"}
            assert json.load(answer) == nothing
        with pytest.raises(KeyError):
            server.stat("size_verdict", "stats ebbtide")


def test_each_pool_has_a_curve_at_its_own_level():
    admin = f"127.0.0.1:{free_port()}"

    def curve(query=""):
        with urllib.request.urlopen(f"http://{admin}/api/curves{query}", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    with Server(EBBTIDE, "-m", "64", "--admin", admin, "--pool", "cold:prefix=cold:") as server:
        with server.connect() as connection:
            for key in range(500):
                connection.ask(b"set warm:%d 0 0 100\r\n%s\r\n" % (key, b"x" * 100))
            of = lambda prefix: b"get %s\r\n" % b" ".join(b"%s:%d" % (prefix, key) for key in range(100))
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (curve()["points"] and curve("?pool=cold")["points"]):
                assert time.monotonic() < deadline, (curve(), curve("?pool=cold"))
                for prefix in (b"warm", b"cold") * 4:
                    connection.ask(of(prefix), b"END\r\n")
                time.sleep(0.2)
        assert curve()["measured_miss_ratio"] == 0 and "; 0.0 % misses" in curve()["verdict"]
        cold = curve("?pool=cold")
        assert cold["pool"] == "cold" and cold["measured_miss_ratio"] == 1 and "100.0 % misses" in cold["verdict"]
        pool, verdict = server.stat("size_verdict", "stats ebbtide").split(": ", 1)
        assert verdict == curve(f"?pool={pool}")["verdict"]
        with pytest.raises(urllib.error.HTTPError) as refusal:
            curve("?pool=nobody")
        assert refusal.value.code == 404 and b"/api/pools" in refusal.value.read()


@contextlib.contextmanager
def one_busy_pool(name):
    """A server with two pools of 32 MiB, of which only this one is used: a loop of 25 MB."""
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, "--pool", "a:prefix=a:") as server:

        def api(path):
            with urllib.request.urlopen(f"http://{admin}/api/{path}", timeout=PATIENCE_SECONDS) as answer:
                return json.load(answer)

        prefix, value = (b"a:" if name == "a" else b""), b"v" * VALUE_BYTES
        with server.connect() as connection:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not (api(f"curves?pool={name}")["points"] and api("overview")["verdict"]):
                assert time.monotonic() < deadline, (api("overview")["verdict"], api(f"curves?pool={name}"))
                for number in range(250):
                    if connection.ask(b"get %skey%d\r\n" % (prefix, number), b"END\r\n") == b"END\r\n":
                        command = b"set %skey%d 0 0 %d\r\n%s\r\n" % (prefix, number, VALUE_BYTES, value)
                        assert connection.ask(command) == b"STORED\r\n"
        yield server, api, f"http://{admin}"


@pytest.mark.parametrize("name", ["default", "a"])
def test_the_verdict_is_of_the_busiest_pool_and_its_memory(name):
    with one_busy_pool(name) as (server, api, _):
        headline = api("overview")["headline"]
        present = api(f"curves?pool={name}")["present"]["memory_bytes"]
        assert headline["pool"] == name and present < 40 << 20
        for part, field in ((0.5, "half"), (1, "present"), (2, "twice")):
            point = api(f"curves?pool={name}&memory={int(present * part)}")["what_if"]
            assert headline[f"hit_ratio_{field}_memory"] == pytest.approx(1 - point["miss_ratio"], abs=0.02), field
        # Half of the loop's pool hits little; half of the cache would hold all.
        assert headline["hit_ratio_half_memory"] < headline["hit_ratio_twice_memory"] - 0.1, headline
        assert api("overview")["verdict"].startswith(f"{name}: ")
        assert server.stat("size_verdict", "stats ebbtide").startswith(f"{name}: ")
        top = subprocess.run(
            [EBBTIDE, "top", f"127.0.0.1:{server.port}", "--once"], capture_output=True, text=True, timeout=60
        )
        assert f"{name}: " in top.stdout, top


def test_the_panel_has_a_choice_of_the_pool(browser):  # noqa: F811
    with one_busy_pool("a") as (server, api, origin):
        dashboard = Dashboard(browser, server, origin)
        dashboard.open()
        dashboard.until(lambda: dashboard.find("#curve").is_displayed(), "the panel")
        assert dashboard.find("#curve-pool").get_property("value") == "a"
        assert dashboard.text("verdict").startswith("a: ")
        assert "Hits of a with half of it" in dashboard.find("#headline").text
        present = api("curves?pool=a")["present"]["memory_bytes"]
        assert dashboard.value("curve-memory-bytes") == present
        dashboard.script(
            "const node = document.getElementById('curve-pool'); node.value = 'default'; node.dispatchEvent(new Event('change'))"
        )
        dashboard.until(lambda: dashboard.find("#curve-none").is_displayed(), "default has no curve")
        assert dashboard.console() == []
        browser.get("about:blank")


@pytest.fixture
def dashboard(browser, server):  # noqa: F811
    browser.get_log("browser")
    yield Dashboard(browser, server[0], server[3])
    browser.get("about:blank")


def choose(dashboard, element, value):
    dashboard.script(
        "const node = document.getElementById(arguments[0]); node.value = arguments[1]; node.dispatchEvent(new Event('input'))",
        element,
        str(value),
    )


@pytest.mark.parametrize("width", [1280, 390])
def test_the_panel_has_the_numbers_of_the_json(dashboard, width):
    dashboard.open(width=width)
    if width < 400:
        dashboard.find("#curve-title").send_keys(Keys.ENTER)
    dashboard.until(lambda: dashboard.find("#curve").is_displayed(), "the panel")
    # The page shows the curve of its last look.
    dashboard.until(lambda: dashboard.find("#verdict").text == dashboard.api("curves")["verdict"], "the verdict")
    points = dashboard.api("curves")["points"]
    assert dashboard.value("curve-memory-bytes") == 64 << 20, "the slider begins at the present size"
    for at in (0, 20, len(points) - 1):
        choose(dashboard, "curve-memory", at)
        assert dashboard.value("curve-memory-bytes") == points[at]["memory_bytes"]
        assert dashboard.value("curve-misses") == pytest.approx(points[at]["miss_ratio"], abs=0.002)
    choose(dashboard, "curve-memory", len(points) - 1)
    choose(dashboard, "curve-price", 4)
    assert dashboard.value("curve-cost") == pytest.approx(0.5 * 4)
    hits, misses = dashboard.value("curve-hits-rate"), dashboard.value("curve-misses-rate")
    assert hits + misses == 0 or misses / (hits + misses) == pytest.approx(points[-1]["miss_ratio"], abs=0.002)
    assert dashboard.find("#curve-entropy").text.startswith("Miss entropy 0.0 bits: nearly all misses")
    assert dashboard.value("curve-flash-bytes") == 0, "no flash is assumed"
    assert "now 64 MiB" in plain(dashboard.find("#curve-plot").get_attribute("aria-label"))
    assert len(dashboard.browser.find_elements(By.CSS_SELECTOR, "#curve-plot circle")) == 2
    assert dashboard.script("return document.documentElement.scrollWidth <= window.innerWidth"), "nothing is cut at the side"
    assert dashboard.console() == []


def test_flash_has_a_slider_where_there_is_some(browser, tmp_path):  # noqa: F811
    with loaded("--flash", f"{tmp_path / 'flash'}:256m") as (server, api, _, origin):
        dashboard = Dashboard(browser, server, origin)
        dashboard.open()
        dashboard.until(lambda: dashboard.find("#curve-flash-row").is_displayed(), "the slider of flash")
        choose(dashboard, "curve-price", 0)
        choose(dashboard, "curve-flash-price", 2)
        choose(dashboard, "curve-flash", 4)
        assert not dashboard.find("#curve-flash-none").is_displayed()
        present = dashboard.value("curve-flash-bytes")
        assert present > 0 and dashboard.value("curve-cost") == pytest.approx(2 * present / 2**30)
        choose(dashboard, "curve-flash", 0)
        assert dashboard.value("curve-flash-bytes") == 0 and dashboard.value("curve-cost") == 0
        browser.get("about:blank")


def test_flash_is_offered_where_there_is_none(dashboard):
    dashboard.open()
    dashboard.until(lambda: dashboard.find("#curve").is_displayed(), "the panel")
    assert "no flash" in dashboard.find("#curve-flash-none").text and "fewest" in dashboard.find("#curve-flash-none").text
    points = dashboard.api("curves")["points"]
    choose(dashboard, "curve-memory", [point["memory_bytes"] for point in points].index(64 << 20))
    choose(dashboard, "curve-price", 4)
    choose(dashboard, "curve-flash-price", 2)
    for step, memory in ((2, 128 << 20), (14, points[-1]["memory_bytes"])):
        choose(dashboard, "curve-flash", step)
        assert dashboard.value("curve-flash-bytes") == memory - (64 << 20)
        both = dashboard.api(f"curves?memory={memory}")["what_if"]["miss_ratio"]
        assert dashboard.value("curve-misses") == pytest.approx(both, abs=0.002)
        assert dashboard.value("curve-cost") == pytest.approx(4 / 16 + 2 * (memory / 2**30 - 1 / 16))
    # The curve ends there.
    choose(dashboard, "curve-flash", 100)
    assert dashboard.value("curve-flash-bytes") == points[-1]["memory_bytes"] - (64 << 20)
    assert dashboard.console() == []
