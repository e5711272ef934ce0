"""The dashboard in a real browser: what it shows, how it is reached, and what it does when the server goes away."""

import contextlib
import itertools
import json
import re
import signal
import struct
import subprocess
import time
import urllib.request

import pytest
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from harness import EBBTIDE, PATIENCE_SECONDS, PATIENT_FLASH, Server, free_port

CHARTS = ["ratio", "throughput", "latency", "removals", "network", "connections", "items"]


class Dashboard:
    """A server with its dashboard, open in the browser."""

    def __init__(self, browser, server, origin):
        self.browser, self.server, self.origin = browser, server, origin

    def open(self, width=1280, height=900):
        self.emulate("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.browser.get(self.origin + "/")
        self.until(lambda: self.text("state") == "Live", "the first numbers")

    def emulate(self, command, **parameters):
        self.browser.execute_cdp_cmd(command, parameters)

    def until(self, condition, what):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            # The page makes and replaces what it shows while the test looks.
            with contextlib.suppress(NoSuchElementException, StaleElementReferenceException):
                found = condition()
                if found:
                    return found
            if time.monotonic() > deadline:
                raise AssertionError(f"not in time: {what}\n{self.find('body').text}")
            time.sleep(0.1)

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def script(self, text, *args):
        return self.browser.execute_script(text, *args)

    def text(self, element):
        return self.script("return document.getElementById(arguments[0]).textContent", element).strip()

    def value(self, element):
        value = self.script("return document.getElementById(arguments[0]).value", element)
        return float(value) if value else None

    def rows(self, table):
        rows = self.script(
            "return [...document.getElementById(arguments[0]).tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent))",
            table,
        )
        return [[plain(cell) for cell in row] for row in rows]

    def chart(self, name):
        return self.find(f"#chart-{name} .plot")

    def reading(self, name):
        return plain(self.chart(name).get_attribute("aria-valuetext"))

    def api(self, path):
        with urllib.request.urlopen(f"{self.origin}/api/{path}", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)

    def console(self):
        return [entry["message"] for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def plain(text):
    """With ordinary spaces."""
    return re.sub(r"[\u00a0\u202f\u2002]", " ", text)


@pytest.fixture
def dashboard(browser, request):
    """A parameter holds more flags."""
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, *getattr(request, "param", [])) as server:
        browser.get_log("browser")
        browser.get_log("performance")
        yield Dashboard(browser, server, f"http://{admin}")
        browser.execute_cdp_cmd("Network.enable", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
        browser.get("about:blank")


def traffic(server, keys=(b"<b>key</b>",), gets=3, misses=1, ttl=100):
    """For each key a set, some gets that hit, and some that miss."""
    with server.connect() as connection:
        for key in keys:
            connection.ask(b"set %s 0 %d 10\r\n0123456789\r\n" % (key, ttl))
            for _ in range(gets):
                connection.ask(b"get %s\r\n" % key, b"END\r\n")
            for _ in range(misses):
                connection.ask(b"get none\r\n", b"END\r\n")


def test_numbers_are_those_of_the_api(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"key%d" % number for number in range(200)])
    with dashboard.server.connect() as connection:
        connection.ask(b"delete key0\r\n")
        connection.ask(b"delete key0\r\n")

    def agrees():
        overview = dashboard.api("overview")
        memory = overview["memory"]
        shown = {
            "items": overview["items"],
            "connections": overview["connections"]["open"],
            "memory-used": memory["used_bytes"],
            "memory-live_bytes": memory["live_bytes"],
            "memory-index_bytes": memory["index_bytes"],
            "memory-free_bytes": memory["free_bytes"],
        }
        return all(dashboard.value(name) == number for name, number in shown.items()) and overview

    overview = dashboard.until(agrees, "the numbers of /api/overview")
    assert overview["items"] == 199
    commands = {row[0]: row for row in dashboard.rows("commands")}
    assert commands["get"][2:4] == ["600", "200"]
    assert commands["set"][2:4] == ["200", "0"]
    assert commands["delete"][2:4] == ["1", "1"]
    assert plain(dashboard.text("items")) == "199"
    # The rates of the last minute come once a second.
    dashboard.until(lambda: plain(dashboard.text("hit-ratio")) == "75 %", "the hit ratio of the last minute")
    assert "75 % since start" in plain(dashboard.text("hit-ratio-sub"))
    assert plain(dashboard.text("memory-used-sub")).endswith("of 64 MiB")
    (ttl,) = dashboard.rows("ttl")
    assert ttl[4] == "199"
    (pool,) = dashboard.rows("pools")
    assert pool[0] == overview["pools"][0]["name"]
    assert pool[3:] == ["199", "75 %"]
    assert dashboard.console() == []


def test_now_is_the_same_everywhere(dashboard):
    """One moment, seen by the page, the API, `stats ebbtide` and `ebbtide top`."""
    dashboard.open()
    traffic(dashboard.server, [b"key%d" % number for number in range(100)], gets=7, misses=3)
    seen = {}

    def same_second():
        # The page asks at once, so that its answer is of this second, too.
        dashboard.browser.execute_async_script("const done = arguments[0]; poll().then(done, done)")
        before = dashboard.api("overview")["now"]
        page = dashboard.script("return live.overview.now")
        seen["shown"] = {name: dashboard.value(name) for name in ("hit-ratio", "headline-now", "throughput")}
        seen["commands"] = {row[0]: row[1] for row in dashboard.rows("commands")}
        seen["charts"] = [plain(dashboard.find(f"#chart-{name} .legend").text) for name in ("ratio", "throughput")]
        told = subprocess.run(
            [EBBTIDE, "top", f"127.0.0.1:{dashboard.server.port}", "--json", "--once", "--interval", "0.1"], capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        seen["top"] = json.loads(told.stdout)
        with dashboard.server.connect() as connection:
            lines = connection.ask(b"stats ebbtide\r\n", b"END\r\n").decode().splitlines()
        seen["stats"] = dict(line.split(" ", 2)[1:] for line in lines if line.startswith("STAT "))
        seen["now"] = dashboard.api("overview")
        # A second that ended amid the traffic knows a part of it only.
        knows_all = round((page["commands_per_second"]["get"] or 0) * page["seconds"]) == 1000
        return before == page == seen["now"]["now"] and knows_all

    dashboard.until(same_second, "all answers of one second")
    now, top, stats, shown = seen["now"]["now"], seen["top"], seen["stats"], seen["shown"]
    close = lambda number: pytest.approx(number, rel=1e-9)  # noqa: E731
    assert now["hit_ratio"] == close(0.7)
    assert [shown["hit-ratio"], shown["headline-now"], top["hit_ratio"], float(stats["now_hit_ratio"])] == [close(0.7)] * 4
    gets, sets = now["commands_per_second"]["get"], now["commands_per_second"]["set"]
    assert [top["operations"]["get"]["per_second"], float(stats["now_get_per_second"])] == [close(gets)] * 2
    assert [shown["throughput"], top["operations_per_second"]] == [close(gets + sets)] * 2
    assert top["window_seconds"] == close(now["seconds"])
    assert seen["now"]["headline"]["sentence"].startswith("70.0 % of gets hit")
    # As people read them: the table of commands and the readings of the charts.
    assert "hits of gets\n70 %" in seen["charts"][0]
    assert f"gets\n{seen['commands']['get']}" in seen["charts"][1] and f"sets\n{seen['commands']['set']}" in seen["charts"][1]
    assert dashboard.console() == []


def test_a_flood_is_seen_by_its_prefix(dashboard):
    """Keys that fill the memory and are not read, beside few that are read: the page names them."""
    dashboard.open()
    assert "Nothing is stored yet, and no client asks." == dashboard.text("headline-text")
    with dashboard.server.connect() as connection:
        for number in range(300):
            connection.ask(b"set user:%d 0 0 100\r\n" % number + b"x" * 100 + b"\r\n")
            connection.ask(b"get user:%d\r\n" % number, b"END\r\n")
        for number in range(1500):
            connection.ask(b"set flood:%d 0 0 60000\r\n" % number + b"x" * 60000 + b"\r\n")
    dashboard.until(lambda: dashboard.rows("prefixes") and dashboard.rows("prefixes")[0][0] == "flood:", "the prefix")

    def agrees():
        answer = dashboard.api("keys")
        flood = next(row for row in answer["prefixes"] if row["prefix"] == "flood:")
        shown = {row[0]: row for row in dashboard.rows("prefixes")}["flood:"]
        has_evictions = flood["evictions_per_second"] > 0 and flood["evicted_unread_share"] > 0.9
        # What the page does not know yet is a dash.
        is_known = "\u2013" not in shown[3:5]
        return has_evictions and is_known and shown[3].replace(" ", "") == str(round(flood["items"])) and float(shown[4].rstrip(" %")) > 95 and flood

    flood = dashboard.until(agrees, "the numbers of /api/keys")
    assert flood["memory_share"] > 0.9 and flood["unread_share"] > 0.95 and flood["evicted_idle_seconds"] >= 0
    (largest, *_) = dashboard.rows("largest")
    assert largest[0].startswith("flood:") and largest[3] == "none"
    sizes = lambda: sum(int(row[3].replace(" ", "")) for row in dashboard.rows("sizes"))  # noqa: E731
    dashboard.until(lambda: sizes() == dashboard.api("overview")["items"], "all objects by size")

    # Who was evicted, by each group: most are flood objects that were never read, of one size and without a TTL.
    for group, name in (("pools", "default"), ("sizes", "to 64 KiB"), ("ttls", "never expires")):
        Select(dashboard.find("#evicted-by")).select_by_value(group)
        row = dashboard.until(lambda: next((row for row in dashboard.rows("evicted") if row[0] == name), None), name)
        assert float(row[3].rstrip(" %")) > 90 and row[2].endswith("/s") and row[4] != "\u2013" and row[5] != "\u2013", row

    new = itertools.count(10_000)

    def told():
        with dashboard.server.connect() as connection:
            for number in range(40):
                connection.ask(b"set flood:%d 0 0 60000\r\n" % next(new) + b"x" * 60000 + b"\r\n")
                connection.ask(b"get user:%d\r\n" % number, b"END\r\n")
        return "Keys of flood: take" in dashboard.text("headline-text")

    # The verdict names the cause while something is evicted and clients read.
    dashboard.until(told, "the verdict")
    assert dashboard.console() == []


def test_longer_times_come_from_the_servers_history(dashboard):
    dashboard.open()
    dashboard.until(lambda: dashboard.api("history")["points"], "the first point")
    traffic(dashboard.server, [b"key"], gets=40, misses=0)
    dashboard.until(lambda: sum(point["gets"] for point in dashboard.api("history?range=604800")["points"]) == 40, "minutes")
    for seconds in ("300", "3600", "604800"):
        Select(dashboard.find("#range")).select_by_value(seconds)
        dashboard.until(lambda: dashboard.script("return charts[1].steps.length") >= 1, "a step")
        dashboard.chart("throughput").send_keys(Keys.END)
        dashboard.until(lambda: "gets" in dashboard.reading("throughput"), "a reading")
        dashboard.chart("throughput").send_keys(Keys.ESCAPE)
    assert dashboard.api("history?range=300")["step_seconds"] == 1
    assert dashboard.api("history?range=3600")["step_seconds"] == 60
    assert dashboard.console() == []


def test_the_history_file_keeps_minutes_over_a_restart(tmp_path):
    admin = f"127.0.0.1:{free_port()}"
    history = tmp_path / "history"

    def points():
        with urllib.request.urlopen(f"http://{admin}/api/history?range=86400", timeout=PATIENCE_SECONDS) as answer:
            return json.load(answer)["points"]

    def until(condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, points()
            time.sleep(0.1)

    flags = ["-m", "64", "--admin", admin, "--history-file", str(history)]
    with Server(EBBTIDE, *flags) as server:
        # Counting begins with the first look; a point says that it was taken.
        until(points)
        traffic(server, [b"key"], gets=30, misses=0)
        until(lambda: sum(point["gets"] for point in points()) == 30)
    with Server(EBBTIDE, *flags):
        until(lambda: sum(point["gets"] for point in points()) == 30)
    history.write_text("precious")
    refused = subprocess.run([EBBTIDE, *flags, "-p", str(free_port())], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert refused.returncode != 0 and "--history-file" in refused.stderr and "not a history" in refused.stderr
    assert history.read_text() == "precious"


@pytest.mark.parametrize("dashboard", [["--pool", "users:prefix=user:,min=8m"]], indirect=True)
def test_pools_have_a_section_where_there_are_several(dashboard):
    dashboard.open()
    dashboard.until(lambda: dashboard.find("#pools-card").is_displayed(), "the section")
    assert [row[0] for row in dashboard.rows("pools")] == ["default", "users"]
    assert "No decision yet." in dashboard.find("#pools-card").text


def test_a_phone_has_the_verdict_then_the_memory_and_the_rest_folded(dashboard):
    dashboard.open(390, 800)
    titles = dashboard.script(
        "return [...document.querySelectorAll('main section')].filter((e) => e.checkVisibility()).map((e) => {"
        " const title = document.getElementById(e.getAttribute('aria-labelledby')); return [title.textContent, title.getAttribute('aria-expanded')]; })"
    )
    assert titles[:2] == [["Verdict", None], ["Where the memory is", None]]
    assert len(titles) > 8 and all(expanded == "false" for _, expanded in titles[2:]), titles
    assert [title for title, _ in titles[2:4]] == ["Now", "Over time"]
    assert dashboard.find("#headline-text").is_displayed() and dashboard.find("#memory-bar").is_displayed()
    for folded in ("#keys-note", "#hit-ratio", "#chart-ratio .plot", "#chart-items .plot", "#browse-form", "#server"):
        assert not dashboard.find(folded).is_displayed(), folded
    for section, inside in (("keys", "#keys-note"), ("now", "#hit-ratio"), ("over-time", "#chart-ratio .plot")):
        title = dashboard.find(f"#{section}-title")
        assert (title.aria_role, title.get_attribute("aria-expanded")) == ("button", "false")
        title.send_keys(Keys.ENTER)
        assert dashboard.find(inside).is_displayed()
        assert title.get_attribute("aria-expanded") == "true"
    # A wider window has the usual order, and nothing folded.
    dashboard.emulate("Emulation.setDeviceMetricsOverride", width=1280, height=900, deviceScaleFactor=1, mobile=False)
    order = "return [...document.querySelectorAll('main > section')].slice(0, 4).map((e) => e.id)"
    dashboard.until(lambda: dashboard.script(order) == ["headline", "now", "over-time", "memory"], "the order")
    assert dashboard.find("#server").is_displayed()


def test_tiles_have_sparklines(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"key"], gets=50)
    names = ["ratio", "throughput", "latency", "memory", "items", "connections"]
    drawn = "return arguments[0].map((name) => document.querySelector(`#spark-${name} path`).getAttribute('d') ?? '')"
    dashboard.until(lambda: all(re.match(r"M[\d.]+ [\d.]+", path) for path in dashboard.script(drawn, names)), "a line in each")
    assert not any("NaN" in path for path in dashboard.script(drawn, names))


@pytest.mark.parametrize(("locale", "pattern"), [("en-US", r"\d\d:\d\d:\d\d [AP]M"), ("de-DE", r"\d\d:\d\d:\d\d")])
def test_times_are_those_of_the_readers_locale(dashboard, locale, pattern):
    dashboard.emulate("Emulation.setLocaleOverride", locale=locale)
    try:
        dashboard.open()
        time = dashboard.until(lambda: plain(dashboard.find("#events time").text), "the start")
        assert re.fullmatch(pattern, time), time
        assert re.search(r"20\d\d", dashboard.text("server"))
    finally:
        dashboard.emulate("Emulation.setLocaleOverride")


def test_a_mark_of_a_flush_outlives_a_restart(browser, tmp_path):
    admin = f"127.0.0.1:{free_port()}"
    flags = ["-m", "64", "--admin", admin, "--history-file", str(tmp_path / "history")]
    with Server(EBBTIDE, *flags) as server:
        seen = Dashboard(browser, server, f"http://{admin}")

        def is_noted():
            with server.connect() as connection:
                connection.ask(b"flush_all\r\n")
            return "flush" in [event["kind"] for event in seen.api("overview")["events"]]

        seen.until(is_noted, "the event")
    with Server(EBBTIDE, *flags) as server:
        seen = Dashboard(browser, server, f"http://{admin}")
        seen.open()
        Select(seen.find("#range")).select_by_value("604800")
        marks = "return [...document.querySelectorAll('#chart-ratio .event-mark')].map((mark) => mark.parentNode.querySelector('title').textContent)"
        seen.until(lambda: any("flush: flush_all" in mark for mark in seen.script(marks)), "the mark of the flush")
        # The start before this one is marked, too.
        assert sum("start: the server has started" in mark for mark in seen.script(marks)) == 1
        assert "flush" in seen.script("return [...document.querySelectorAll('#events .kind')].map((kind) => kind.textContent)")
        assert seen.console() == []
        browser.get("about:blank")


# The layout of the nodes under a long verdict: lines of each address, verdicts that are narrower than wanted, the width
# of the page, and how much of the table is outside of it.
FLEET_WIDTHS = """
const rows = [...document.getElementById("nodes").tBodies[0].rows];
const tops = (cell) => {
  const range = document.createRange();
  range.selectNodeContents(cell);
  return new Set([...range.getClientRects()].map((line) => line.top)).size;
};
for (const row of rows) row.cells[1].textContent = "74.2 % of gets hit. 100 % of the evicted objects leave unread: give them a shorter TTL.";
const widths = rows.map((row) => row.cells[1].getBoundingClientRect().width);
const scroll = document.querySelector("#nodes").parentNode;
return {
  lines: rows.map((row) => tops(row.cells[0])),
  narrow: widths.filter((width) => width < arguments[0]),
  page: document.documentElement.scrollWidth,
  hidden: scroll.scrollWidth - scroll.clientWidth,
};
"""


def test_a_fleet_shows_each_node_and_one_that_hangs(browser, tmp_path):
    admins = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    page = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admins[0]) as first, Server(EBBTIDE, "-m", "64", "--admin", admins[1]) as second:
        fleet = subprocess.Popen([EBBTIDE, "dashboard", "--nodes", ",".join(admins), "--listen", page], stderr=subprocess.PIPE, text=True)
        try:
            assert "2 nodes" in fleet.stderr.readline()
            traffic(first, [b"a", b"b", b"c"])
            traffic(second, [b"a"])
            seen = Dashboard(browser, first, f"http://{page}")
            browser.get(f"http://{page}/")
            items = lambda: [row[7] for row in seen.rows("nodes")]  # noqa: E731
            seen.until(lambda: items() == ["3", "1"], "the items of both")
            assert seen.api("fleet")["skew"]["items"] == 1.5
            assert [row[0] for row in seen.rows("nodes")] == admins
            for width, wanted in [(1400, 400), (390, 300)]:
                seen.emulate("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
                assert seen.script(FLEET_WIDTHS, wanted) == {"lines": [1, 1], "narrow": [], "page": width, "hidden": 0}, width
            second.stop_threads()
            try:
                seen.until(lambda: "Does not answer since" in seen.rows("nodes")[1][1], "that one is silent")
                assert seen.text("headline-text") == f"1 of 2 nodes do not answer: {admins[1]}."
                traffic(first, [b"d"])
                seen.until(lambda: items() == ["4", "1"], "that the other goes on")
            finally:
                second.process.send_signal(signal.SIGCONT)
            seen.until(lambda: seen.api("fleet")["nodes"][1]["error"] is None, "that it is back")
            assert seen.console() == []
        finally:
            fleet.kill()
            fleet.wait()
            browser.get("about:blank")
    refused = subprocess.run([EBBTIDE, "dashboard", "--nodes", "http://a"], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert refused.returncode == 2 and "give HOST:PORT" in refused.stderr


def test_keys_are_found_by_a_text_and_values_only_after_a_question(dashboard):
    traffic(dashboard.server, [b"user:%d" % number for number in range(300)] + [b"<b>page</b>"], gets=0, misses=0)
    dashboard.open()
    find = dashboard.find("#browse-filter")
    form = dashboard.find("#browse-form")
    assert (form.aria_role, find.aria_role, find.accessible_name) == ("search", "searchbox", "Key contains")
    find.send_keys("page", Keys.ENTER)
    dashboard.until(lambda: [row[0] for row in dashboard.rows("entries")] == ["<b>page</b>"], "the key")
    assert "1 keys with \u201cpage\u201d among 301 objects; that is all." in plain(dashboard.text("entries-note"))
    (row,) = dashboard.rows("entries")
    assert (row[1], row[5]) == ("default", "never")

    # The value is neither asked for nor shown before the reader says so.
    button = dashboard.find("#entries button")
    assert button.accessible_name == "Value of <b>page</b>"
    button.send_keys(Keys.ENTER)
    dialog = dashboard.until(lambda: dashboard.find("#value") if dashboard.find("#value").is_displayed() else None, "the question")
    assert (dialog.aria_role, dialog.accessible_name) == ("dialog", "<b>page</b>")
    assert "personal data" in dashboard.text("value-note") and dashboard.text("value-text") == ""
    asked = "return performance.getEntriesByType('resource').filter((entry) => entry.name.includes('/api/value')).length"
    assert dashboard.script(asked) == 0
    # Escape closes it, and the focus is where it was.
    dialog.send_keys(Keys.ESCAPE)
    dashboard.until(lambda: not dashboard.find("#value").is_displayed(), "the end of the question")
    assert dashboard.script("return document.activeElement.textContent") == "Value"
    button.send_keys(Keys.ENTER)
    dashboard.until(lambda: dashboard.find("#value-show").is_displayed(), "the question")
    dashboard.find("#value-show").send_keys(Keys.ENTER)
    dashboard.until(lambda: dashboard.text("value-text") == "0123456789", "the value")
    assert "10 B, flags 0, expires in" in plain(dashboard.text("value-note"))
    dashboard.find("#value-close").click()

    find.clear()
    find.send_keys("user:", Keys.ENTER)
    dashboard.until(lambda: len(dashboard.rows("entries")) >= 100, "the first keys")
    while dashboard.find("#entries-more").is_displayed():
        shown = len(dashboard.rows("entries"))
        dashboard.find("#entries-more").click()
        dashboard.until(lambda: len(dashboard.rows("entries")) > shown or not dashboard.find("#entries-more").is_displayed(), "more keys")
    assert sorted(row[0] for row in dashboard.rows("entries")) == sorted(f"user:{number}" for number in range(300))
    assert dashboard.console() == []


def record_of(time_ms, gets, hits):
    """A minute of the history file, as `history_file.rs` draws it."""
    words = [time_ms, gets, hits, *[0] * 10]
    checksum = 0xCBF29CE484222325
    for word in words:
        checksum = ((checksum ^ word) * 0x100000001B3) & (1 << 64) - 1
    return struct.pack("<14Q", *words, checksum)


def test_the_day_before_is_drawn_where_it_is_known(dashboard, browser, tmp_path):
    dashboard.open()
    assert not dashboard.find("#compare-row").is_displayed(), "there is no day before"
    history = tmp_path / "history"
    week = 7 * 24 * 60
    ring = bytearray(b"EBBHIST1") + bytearray(112 * week)
    now = int(time.time() * 1000)
    for ago in range(24 * 60 - 30, 24 * 60 + 30):
        minute = now - ago * 60_000
        place = 8 + minute // 60_000 % week * 112
        ring[place : place + 112] = record_of(minute, 6000, 1500)
    history.write_bytes(ring)
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "--admin", admin, "--history-file", str(history)) as server:
        seen = Dashboard(browser, server, f"http://{admin}")
        seen.open()
        traffic(server, [b"key"], gets=50, misses=0)
        box = seen.until(lambda: seen.find("#compare") if seen.find("#compare").is_displayed() else None, "the choice")
        assert (box.aria_role, box.accessible_name) == ("checkbox", "Compare with a day before")
        assert "a day before" not in seen.find("#chart-ratio").text
        box.send_keys(Keys.SPACE)
        seen.until(lambda: "hits of gets a day before" in seen.find("#chart-ratio").text, "the legend")
        line = "return document.querySelector('#chart-ratio .earlier').getAttribute('d').length"
        seen.until(lambda: seen.script(line) > 20, "the line")
        # A quarter of the gets hit then, and 100 gets a second.
        seen.chart("ratio").send_keys(Keys.END)
        seen.until(lambda: "a day before 25 %" in seen.reading("ratio"), "the ratio of then")
        seen.chart("throughput").send_keys(Keys.END)
        seen.until(lambda: "a day before 100/s" in seen.reading("throughput"), "the gets of then")
        told = seen.until(lambda: plain(seen.text("compare-note")), "the sentence")
        assert "100 % of gets hit, a day before 25 %" in told and told.endswith("gets, then 100/s.")
        seen.find("#chart-ratio summary").click()
        assert "a day before" in seen.until(lambda: seen.find("#chart-ratio details thead").text, "the table")
        # Of a time without history the page says so.
        assert seen.api("history?range=60&ago=259200")["points"] == []
        told = seen.script("live.overview.uptime_seconds = 9; takeBefore({ points: [], step_seconds: 60 }); return document.getElementById('compare-note').textContent")
        assert "no history of that time" in told
        box.send_keys(Keys.SPACE)
        seen.until(lambda: "a day before" not in seen.find("#chart-ratio").text, "that it is gone")
        assert seen.console() == []
        browser.get("about:blank")


def test_hot_keys_have_size_ttl_and_hit_ratio(dashboard):
    dashboard.open()
    wanted = lambda: {row[0]: row[4:] for row in dashboard.rows("hot")}  # noqa: E731

    def are_shown():
        # Keys are sampled, and the key expires on a machine that is busy: there is traffic until both are shown.
        traffic(dashboard.server, [b"key"], gets=600, misses=200)
        rows = wanted()
        key, none = rows.get("key", [""]), rows.get("none")
        return key[0] == "100 %" and key[-1] != "\u2013" and none == ["0 %", "\u2013", "\u2013"] and key

    size, ttl = dashboard.until(are_shown, "both keys with their hit ratios")[1:]
    assert size.endswith(" B") and re.fullmatch(r"1 min( \d+ s)?|\d+ s", ttl), (size, ttl)


def test_the_largest_objects_have_a_hit_ratio(dashboard):
    dashboard.open()
    value = b"x" * 50_000

    def agrees():
        # Half of the gets find the object. Gets are sampled, and a census may find it absent: there is traffic until
        # the page shows what the API tells.
        with dashboard.server.connect() as connection:
            for _ in range(20):
                connection.ask(b"set big 0 0 %d\r\n" % len(value) + value + b"\r\n")
                connection.ask(b"get big\r\n", b"END\r\n")
                connection.ask(b"delete big\r\n")
                connection.ask(b"get big\r\n", b"END\r\n")
            connection.ask(b"set big 0 0 %d\r\n" % len(value) + value + b"\r\n")
        told = {row["key"]: row["hit_ratio"] for row in dashboard.api("keys")["largest"]}.get("big")
        shown = {row[0]: row[6] for row in dashboard.rows("largest")}.get("big")
        return told is not None and 0 < told < 1 and shown is not None and re.fullmatch(r"[\d.]+ %", shown)

    dashboard.until(agrees, "the hit ratio of the largest object")


def test_what_left_is_shown_with_its_reason(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"short%d" % number for number in range(50)], ttl=1)
    with dashboard.server.connect() as connection:
        for number in range(100):
            connection.ask(b"set large%d 0 0 900000\r\n" % number + b"x" * 900000 + b"\r\n")
    wanted = {"Evicted: memory was full": ("evictions", "memory"), "Expired with its whole segment": ("expirations", "segment")}

    def agrees():
        overview = dashboard.api("overview")
        shown = {row[0]: row[3] for row in dashboard.rows("reasons")}
        return all(shown.get(name) == str(overview[kind]["by_reason"][reason]) for name, (kind, reason) in wanted.items())

    dashboard.until(agrees, "the counts of both reasons")
    kinds = "return [...document.querySelectorAll('#events .kind')].map((kind) => kind.textContent)"
    dashboard.until(lambda: {"eviction", "expiry"} <= set(dashboard.script(kinds)), "an event of each")


def test_charts_show_the_traffic_with_units_and_as_tables(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"key"], gets=900, misses=300)

    def drawn(name):
        return dashboard.script(
            "return [...document.querySelectorAll(`#chart-${arguments[0]} .series[d]`)].map((line) => line.getAttribute('d')).filter((d) => d !== 'M2 4H20' && d)",
            name,
        )

    for name in CHARTS:
        dashboard.until(lambda: drawn(name), f"a line of the chart {name}")
    axis = {name: plain(dashboard.find(f"#chart-{name} svg[height]").get_attribute("textContent")) for name in CHARTS}
    assert "%" in axis["ratio"] and "/s" in axis["throughput"] and "µs" in axis["latency"] and "B/s" in axis["network"]
    dashboard.find("#chart-throughput summary").click()
    table = dashboard.until(lambda: dashboard.find("#chart-throughput details table").text, "the table")
    assert "Minute" in table and "gets" in table and "/s" in table


def test_misses_are_beside_hits_on_an_axis_that_says_its_beginning(dashboard):
    dashboard.open()
    assert "axis begins" not in dashboard.find("#chart-ratio").text, "nothing is known yet"
    traffic(dashboard.server, [b"key"], gets=95, misses=5)
    dashboard.until(lambda: "axis begins at 90 %; misses at the right" in plain(dashboard.find("#chart-ratio").text), "the axis")
    dashboard.chart("ratio").send_keys(Keys.END)
    dashboard.until(lambda: "hits of gets 95 %, misses 5 %" in dashboard.reading("ratio"), "both ratios")
    ticks = "return [...document.querySelectorAll('#chart-ratio .plot text')].map((text) => text.textContent)"
    assert {"90 %", "95 %", "100 %", "10 %", "5 %", "0 %"} <= {plain(tick) for tick in dashboard.script(ticks)}


def test_dead_memory_says_whether_it_is_bad(dashboard):
    dashboard.open()
    look = "showMemory({ limit_bytes: 100, dead_bytes: arguments[0] }, arguments[1]); return document.getElementById('memory-parts').textContent"
    for dead, evicted, told in [(50, 0, "not bad: "), (10, 7, "not bad: "), (50, 7, "bad: much of it while objects are evicted"), (50, None, "reused")]:
        # The next answer of the server writes its text again.
        assert f"not filled yet; {told}" in dashboard.script(look, dead, evicted), (dead, evicted)


def test_nothing_is_claimed_before_its_answer(dashboard, browser):
    held = "const answer = window.fetch; window.fetch = (path, ...rest) => /keys|curves/.test(path) && !window.released ? new Promise(() => {}) : answer(path, ...rest);"
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": held})
    try:
        traffic(dashboard.server, [b"key"])
        dashboard.open()
        dashboard.until(lambda: dashboard.value("items") == 1, "an item")
        page = dashboard.script("return document.querySelector('main').innerText")
        assert "Nothing is stored yet." not in page and "Too few gets" not in page
        # An answer from before the first look at the objects.
        census = {"prefixes": [], "sizes": [], "largest": [], "evicted": {"pools": [], "sizes": [], "ttls": []}, "census": None, "hidden": None, "delimiter": ":"}
        dashboard.script("showKeys(arguments[0])", census)
        assert "were not looked at yet" in dashboard.find("#keys").text and "Nothing is stored" not in dashboard.find("#keys").text
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script["identifier"]})


def test_a_page_that_slept_for_an_hour_fills_its_gap(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"key"], gets=40)
    dashboard.until(lambda: dashboard.value("items") == 1, "an item")
    # From now on all times, of the server and of the page, are an hour later.
    dashboard.script(
        """
        const [hour, answer, now, since] = [3_600_000, window.fetch, Date.now, performance.now.bind(performance)];
        window.asked = [];
        Date.now = () => now.call(Date) + hour;
        performance.now = () => since() + hour;
        window.fetch = async (path, ...rest) => {
          window.asked.push(path);
          const told = await (await answer(path, ...rest)).json();
          if (path === "/api/overview") { told.time_unix_ms += hour; told.uptime_seconds += 3600; }
          for (const point of told.points ?? []) point.time_unix_ms += hour;
          return { ok: true, json: async () => told };
        };
        """
    )
    dashboard.until(lambda: "/api/history" in dashboard.script("return window.asked"), "that it asks for what it missed")
    dashboard.until(lambda: dashboard.script("return live.points.length > 0 && live.points.every((point) => point.time > Date.now() - 16 * 60_000)"), "new points")
    dashboard.until(lambda: dashboard.script("return live.points.length") > 2, "points of the present")
    assert dashboard.text("state") == "Live" and not dashboard.find("#lost").is_displayed()
    page = dashboard.script("return document.querySelector('main').innerText")
    assert "NaN" not in page and "Infinity" not in page
    # The clock of the server is set back: later points are gone, too.
    dashboard.script("window.asked.length = 0; live.overview.time_unix_ms += 3_600_000; for (const point of live.points) point.time += 3_600_000")
    dashboard.until(lambda: "/api/history" in dashboard.script("return window.asked"), "that it asks again")
    dashboard.until(lambda: dashboard.script("return live.points.every((point) => point.time <= live.overview.time_unix_ms)"), "an order")
    assert dashboard.console() == []


def test_nothing_is_not_a_number_on_an_idle_server(dashboard):
    dashboard.open()
    dashboard.until(lambda: dashboard.value("connections") is not None, "numbers")
    page = dashboard.script("return document.querySelector('main').innerText + document.querySelector('header').innerText")
    for word in ("NaN", "undefined", "null", "Infinity", "[object"):
        assert word not in page
    assert "Nothing is stored yet." in page and "No key stands out yet." in page
    assert "No gets in this time" in dashboard.find("#chart-ratio").get_attribute("textContent")


def test_a_server_that_goes_away_is_missed_and_found_again(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"a", b"b"])
    dashboard.until(lambda: dashboard.value("items") == 2, "two items")
    dashboard.server.kill()
    dashboard.until(lambda: dashboard.find("#lost").is_displayed(), "that it says so")
    assert re.search(r"does not answer since \d\d:\d\d:\d\d", plain(dashboard.find("#lost").text))
    assert "Trying again" in dashboard.find("#lost").text
    assert dashboard.text("state") == "No answer"
    assert dashboard.value("items") == 2, "the last picture stays"
    assert float(dashboard.find("main").value_of_css_property("opacity")) < 1
    dashboard.server.bring_back()
    dashboard.until(lambda: dashboard.text("state") == "Live", "that it is back")
    assert not dashboard.find("#lost").is_displayed()
    # Another life of the server: its counts begin anew, and what the page has drawn stays.
    dashboard.until(lambda: dashboard.value("items") == 0, "the new numbers")
    assert dashboard.rows("commands")[0][2] == "0"
    assert all("ERR_CONNECTION_REFUSED" in message for message in dashboard.console())


def test_what_was_missed_is_filled_from_the_history(dashboard):
    dashboard.open()
    dashboard.emulate("Network.enable")
    offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    dashboard.emulate("Network.emulateNetworkConditions", offline=True, **offline)
    dashboard.until(lambda: dashboard.find("#lost").is_displayed(), "that the connection is gone")
    traffic(dashboard.server, [b"key"], gets=50, misses=0)
    begun = dashboard.api("history")["points"][-1]["time_unix_ms"]
    dashboard.until(lambda: dashboard.api("history")["points"][-1]["time_unix_ms"] > begun + 9000, "nine seconds")
    dashboard.emulate("Network.emulateNetworkConditions", offline=False, **offline)
    dashboard.find("#retry").click()
    dashboard.until(lambda: dashboard.text("state") == "Live", "that it is back")
    dashboard.chart("throughput").send_keys(Keys.END)
    readings = [dashboard.reading("throughput")]
    # As far back as the chart goes.
    while dashboard.chart("throughput").get_attribute("aria-valuenow") != "0":
        dashboard.chart("throughput").send_keys(Keys.ARROW_LEFT)
        readings.append(dashboard.reading("throughput"))
    assert any(re.search(r"gets (?!0/s)", reading) for reading in readings), readings


def test_all_is_reached_with_the_keyboard(dashboard):
    dashboard.open()
    traffic(dashboard.server, [b"key"], gets=50)
    dashboard.until(lambda: dashboard.reading("throughput") is not None and dashboard.value("items") == 1, "numbers")
    reached, seen = [], set()
    for _ in range(40):
        dashboard.browser.switch_to.active_element.send_keys(Keys.TAB)
        place, outline = dashboard.script(
            "const e = document.activeElement; const s = getComputedStyle(e);"
            "return [e === document.body ? '' : e.id || `${e.closest('[id]')?.id} ${e.className || e.localName}`, s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) > 0]"
        )
        if not place or place in seen:
            break
        assert outline, f"the focus does not show on {place}"
        seen.add(place)
        reached.append(place)
    wanted = ["theme"] + [f"chart-{name} {part}" for name in CHARTS for part in ("plot", "summary")]
    assert [place for place in reached if place in wanted] == wanted


def test_arrow_keys_move_along_a_chart(dashboard):
    dashboard.open()
    time_of = lambda: dashboard.reading("throughput").split(": ")[0]  # noqa: E731
    steps = "return charts[1].steps.length"
    dashboard.until(lambda: dashboard.script(steps) >= 3, "three steps")
    chart = dashboard.chart("throughput")
    chart.send_keys(Keys.END)
    last = time_of()
    assert re.fullmatch(r"\d\d:\d\d:\d\d( [AP]M)?: gets .+/s, hits .+/s, sets .+/s", dashboard.reading("throughput"))
    chart.send_keys(Keys.ARROW_LEFT)
    assert time_of() != last
    # The other charts point at about the same time: narrow ones have longer steps.
    assert all(dashboard.find(f"#chart-{name} .at").text.startswith("at ") for name in CHARTS)
    chart.send_keys(Keys.HOME)
    assert chart.get_attribute("aria-valuenow") == "0"
    chart.send_keys(Keys.ESCAPE)
    assert dashboard.find("#chart-throughput .at").text == "last minute"


def test_light_and_dark(dashboard):
    def brightness():
        color = dashboard.find("body").value_of_css_property("background-color")
        return sum(int(part) for part in re.findall(r"\d+", color)[:3])

    for preferred, other in (("light", "dark"), ("dark", "light")):
        dashboard.emulate("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": preferred}])
        dashboard.open()
        is_light = {"light": lambda: brightness() > 600, "dark": lambda: brightness() < 150}
        assert is_light[preferred]()
        Select(dashboard.find("#theme")).select_by_value(other)
        assert is_light[other]()
        dashboard.open()
        assert is_light[other](), "the choice is kept"
        Select(dashboard.find("#theme")).select_by_value("auto")
        assert is_light[preferred]()


@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens_do_not_scroll_sideways(dashboard, width):
    traffic(dashboard.server, [b"k" * 250, b"short"], gets=2000, misses=0)
    dashboard.open(width, 740)
    dashboard.until(lambda: any(row[0] == "k" * 250 for row in dashboard.rows("hot")), "the long key")
    inside, outside = dashboard.script(
        "return [document.documentElement.scrollWidth, [...document.querySelectorAll('main *, header *')].filter((e) =>"
        " e.getBoundingClientRect().right > innerWidth + 1 && getComputedStyle(e).position !== 'absolute').map((e) => e.outerHTML.slice(0, 80))]"
    )
    assert outside == []
    assert inside <= width


def test_keys_of_others_are_text(dashboard):
    hostile = [b"<img/src=x/onerror=window.hacked=1>", b"</td><script>window.hacked=1</script>", b"&amp;{{nonce}}"]
    dashboard.open()
    traffic(dashboard.server, hostile, gets=2000, misses=0)
    for key in hostile:
        text = key.decode()
        dashboard.until(lambda: text in [row[0] for row in dashboard.rows("hot")], text)
    assert dashboard.script("return document.querySelectorAll('#hot img, #hot script').length") == 0
    assert dashboard.script("return window.hacked") is None
    assert dashboard.console() == []


@pytest.mark.parametrize("dashboard", [["-X"]], indirect=True)
def test_where_keys_are_not_told_the_page_says_why(dashboard):
    traffic(dashboard.server, [b"secret"], gets=2000)
    dashboard.open()
    dashboard.until(lambda: dashboard.value("items") == 1, "the item")
    page = dashboard.script("return document.querySelector('main').innerText")
    assert "Keys are not told: listing keys is switched off (-X)." in page
    assert "secret" not in page


def test_it_talks_to_its_own_server_only(dashboard):
    dashboard.open()
    dashboard.until(lambda: dashboard.value("items") is not None, "numbers")
    requests = []
    for entry in dashboard.browser.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            requests.append(message["params"]["request"]["url"])
    assert f"{dashboard.origin}/api/overview" in requests
    assert [url for url in requests if not url.startswith((dashboard.origin + "/", "data:", "about:"))] == []
    assert dashboard.console() == []
    with urllib.request.urlopen(dashboard.origin + "/") as answer:
        policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy


def test_flash_has_a_section_where_there_is_some(browser, dashboard, tmp_path):
    dashboard.open()
    assert not dashboard.find("#flash").is_displayed()
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "12", "--admin", admin, "--flash", f"{tmp_path / 'flash'}:128m", *PATIENT_FLASH) as server:
        flash = Dashboard(browser, server, f"http://{admin}")
        flash.open()
        flash.until(lambda: "No object has left memory yet." in flash.find("#flash").text, "the section")
        with server.connect() as connection:
            for number in range(3000):
                connection.ask(b"set key%d 0 0 9000\r\n" % number + b"x" * 9000 + b"\r\n")
            for number in range(300):
                connection.ask(b"get key%d\r\n" % number, b"END\r\n")

        def agrees():
            told = flash.api("overview")["flash"]
            rows = {row[0]: row[3] for row in flash.rows("flash-hits")}
            return told["hits"]["large"] > 0 and rows.get("Flash, large objects") == str(told["hits"]["large"]) and told

        flash.until(agrees, "the hits of flash")
        flash.until(lambda: "Large objects" in [row[0] for row in flash.rows("flash-writes")], "what was written")
        flash.find("#browse-filter").send_keys("key", Keys.ENTER)
        flash.until(lambda: flash.rows("entries"), "keys in memory")

        def finds_flash():
            if any(row[6] == "on flash" for row in flash.rows("entries")):
                return True
            # A slow device ends a search; it begins again then.
            more = flash.find("#entries-more")
            (more if more.is_displayed() else flash.find("#browse-form button")).click()
            return False

        flash.until(finds_flash, "keys on flash")
        # A device that stalled, as the disk of a busy machine may, is degraded for a minute.
        text = plain(flash.find("#flash").text)
        assert "Healthy" in text or "Degraded" in text
        for part in ( "of 127 MiB", "A new drive lasts", "p99"):
            assert part in text
        for word in ("NaN", "undefined", "null", "Infinity", "[object"):
            assert word not in text
        flash.open(360, 740)
        assert flash.script("return document.documentElement.scrollWidth") <= 360
        assert flash.console() == []
        browser.get("about:blank")
