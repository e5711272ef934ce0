"""`ebbtide advise`: sizes for a hit ratio and a budget, flash or not, slab classes, and a page with the same numbers."""

import datetime
import json
import re
import shlex
import subprocess

import pytest

from selenium.webdriver.common.by import By

from harness import EBBTIDE


def run(*arguments, check=True):
    result = subprocess.run([EBBTIDE, *map(str, arguments)], capture_output=True, text=True, timeout=300)
    assert not check or result.returncode == 0, result.stderr
    return result


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Large objects, of which the popular ones are few: what flash is for."""
    path = tmp_path_factory.mktemp("advise") / "trace.csv"
    state, lines = 1, []
    for number in range(60_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        key = int(4000 * ((state >> 33) / 2**31) ** 3)
        lines.append(f"{number // 20},{key},20,{3000 + key % 2000},get,0")
    path.write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s\n" + "\n".join(lines) + "\n")
    return path


def advice(trace, *arguments):
    return json.loads(run("advise", trace, "--json", *arguments).stdout)


def test_memory_for_a_hit_ratio_reaches_it_in_a_replay(trace):
    found = advice(trace, "--hit-ratio", "70%")
    plan = found["wanted"]["dram"]
    assert abs(plan["hit_ratio"] - 0.7) < 0.01
    replayed = json.loads(run("replay", trace, "--memory", round(plan["dram_bytes"]), "--json").stdout)
    assert abs((1 - replayed["miss_ratio"]) - 0.7) < 0.02


def test_flash_pays_where_it_is_cheap_and_not_where_it_is_dear(trace):
    cheap = advice(trace, "--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "1000")
    wanted = cheap["wanted"]
    assert wanted["flash_pays"] and wanted["hybrid"]["price"] < wanted["dram"]["price"]
    assert wanted["hybrid"]["hit_ratio"] >= 0.85 - 1e-9
    dear = advice(trace, "--hit-ratio", "0.85", "--flash-price", "50")
    assert not dear["wanted"]["flash_pays"]
    assert any("stay with DRAM: flash would not save" in sentence for sentence in dear["verdict"])


def test_a_limit_that_keeps_flash_from_paying_is_named(trace):
    worn = advice(trace, "--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "0.001")
    wanted = worn["wanted"]
    beyond = wanted["beyond_limit"]
    assert not wanted["flash_pays"] and beyond["price"] < 0.9 * wanted["dram"]["price"]
    assert beyond["binding"] == "endurance of the flash device" and beyond["binding_used"] > 1
    days = f"{beyond['flash_life_years'] * 365:.0f} days"
    told = [sentence for sentence in worn["verdict"] if "stay with DRAM" in sentence]
    assert any("endurance" in sentence and days in sentence for sentence in told)
    paying = advice(trace, "--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "1000")
    assert paying["wanted"]["beyond_limit"] is None
    # The flash is a part of a drive that all of its writes wear: a large enough one lasts.
    drive = f"{beyond['drive_bytes'] * beyond['binding_used'] * 1.01:.0f}"
    large = advice(trace, "--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "0.001", "--flash-drive", drive)
    assert large["wanted"]["flash_pays"] and any("--flash-drive" in sentence for sentence in told)


def test_a_hit_ratio_beyond_reach_is_named(trace):
    found = advice(trace, "--hit-ratio", "99.99%")
    assert found["wanted"]["dram"] is None and found["wanted"]["reachable"] < 0.9999
    assert found["verdict"][0].startswith("a hit ratio of 99.99 % cannot be reached")


def warm_capture(path, evictions):
    """As of a server that had every second key before: the trace, the gets, and the first gets by their answer."""
    state, seen, lines, first = 1, set(), [], [0, 0]
    for number in range(20_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        key = int(4000 * ((state >> 33) / 2**31) ** 3)
        found = 1 if key in seen else key % 2
        first[found] += key not in seen
        seen.add(key)
        lines.append(f"{number // 200},{key},20,1000,get,0,{found}")
    hits = 20_000 - first[0]
    server = f"server_items_before=2000 server_evictions={evictions} server_bytes=4000000 server_memory=6000000"
    head = f"# ebbtide capture: sample=1 seconds=100 {server} server_hits={hits} server_misses={first[0]}"
    path.write_text("\n".join([head, "timestamp_s,key_id,key_size,value_size,op,ttl_s,found", *lines]) + "\n")
    return hits / 20_000, first


@pytest.mark.parametrize("evictions", [0, 5])
def test_a_longer_capture_is_asked_for_what_is_unknown(evictions, tmp_path):
    path = tmp_path / "captured.csv"
    had, (misses, hits) = warm_capture(path, evictions)
    repeated = 1 - (misses + hits) / 20_000
    assert hits > 200 and misses > 200
    # Less memory may do if first gets hit there, too.
    less = advice(path, "--hit-ratio", f"{repeated - 0.02:.4f}")
    assert less["wanted"]["longer_capture"] == "less_may_do" and less["wanted"]["hybrid"] is None
    assert "takes at most" in less["verdict"][0] and "longer capture needed" in less["verdict"][0]
    assert less["wanted"]["dram"]["dram_bytes"] < less["server_memory_bytes"] == 5_000_000
    # Only the memory of the server is known to have what the server has.
    same = advice(path, "--hit-ratio", f"{had - 0.005:.4f}")
    assert same["wanted"]["longer_capture"] == "below_server" and same["wanted"]["dram"] is None
    assert same["wanted"]["reachable"] == pytest.approx(had, abs=0.005)
    # Beyond it a first get that missed was the first of all, unless the server has evicted.
    more = advice(path, "--hit-ratio", f"{had + 0.01:.4f}")
    if evictions:
        assert more["wanted"]["longer_capture"] == "beyond_server" and "longer capture needed" in more["verdict"][0]
    else:
        assert more["wanted"]["longer_capture"] is None and "cannot be reached" in more["verdict"][0]
    assert more["smallest"] is None and not any("hardly pays" in sentence for sentence in more["verdict"])


def test_a_budget_buys_what_its_prices_say(trace):
    found = advice(trace, "--budget", "0.02", "--dram-price", "4")
    assert abs(found["budget"]["dram"]["dram_bytes"] - 0.02 / 4 * 2**30) < 1


def test_slab_classes_are_no_better_first_come_than_optimal(trace):
    slabs = advice(trace, "--hit-ratio", "60%")["slabs"]
    assert len(slabs["classes"]) > 1
    assert slabs["optimal_hit_ratio"] >= slabs["first_come_hit_ratio"] - 1e-6
    assert sum(one["optimal_bytes"] for one in slabs["classes"]) <= slabs["memory_bytes"]
    assert abs(sum(one["share_of_gets"] for one in slabs["classes"]) - 1) < 1e-6


def test_the_memory_of_a_memcached_reaches_the_wanted_hit_ratio(trace):
    found = advice(trace, "--hit-ratio", "60%")
    needed = found["slabs"]["wanted_bytes"]
    assert any(sentence.endswith("for 60.0 %") and "slab classes" in sentence for sentence in found["verdict"])

    def first_come(memory_bytes):
        found = advice(trace, "--budget", f"{4 * memory_bytes / 2**30:.12f}", "--dram-price", "4")["slabs"]
        return found["first_come_hit_ratio"]

    assert first_come(needed + 1) >= 0.6 > first_come(needed * 0.98)
    assert advice(trace, "--hit-ratio", "99.99%")["slabs"]["wanted_bytes"] is None
    assert advice(trace)["slabs"]["wanted_bytes"] is None


HEADER = "timestamp_s,key_id,key_size,value_size,op,ttl_s\n"


def test_objects_too_large_for_memcached_take_none_of_its_pages(tmp_path):
    path = tmp_path / "large.csv"
    small = "".join(f"{number // 100},{number % 150},20,100,get,0\n" for number in range(3000))
    path.write_text(HEADER + "0,999,20,500000000,get,0\n" + small)
    found = advice(path, "--hit-ratio", "90%")
    slabs = found["slabs"]
    assert slabs["first_come_hit_ratio"] > 0.9 and max(one["chunk_bytes"] for one in slabs["classes"]) < 1000
    assert abs(slabs["share_of_gets_too_large"] - 1 / 3001) < 1e-6
    assert any("over 1 MiB, which a memcached refuses" in caveat for caveat in found["caveats"])


def test_slab_classes_may_be_powers_of_two(trace):
    slabs = advice(trace, "--hit-ratio", "60%", "--slab-chunk", "64", "--slab-factor", "2")["slabs"]
    assert {one["chunk_bytes"] for one in slabs["classes"]} <= {64 << power for power in range(14)}


def test_a_drive_with_less_spare_space_lives_shorter_under_small_objects(tmp_path):
    path = tmp_path / "small.csv"
    state, lines = 1, []
    for number in range(40_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        lines.append(f"{number // 20},{int(8000 * ((state >> 33) / 2**31) ** 3)},20,300,get,0\n")
    path.write_text(HEADER + "".join(lines))
    flags = ["--hit-ratio", "0.7", "--flash-price", "0.01", "--flash-dwpd", "10000"]
    least, most = (advice(path, *flags, "--flash-spare", spare)["wanted"]["hybrid"] for spare in ("7", "900"))
    assert least["flash_life_years"] < 0.3 * most["flash_life_years"]
    assert least["device_amplification"] > 4 and abs(most["device_amplification"] - 1) < 0.01


def test_one_prefix_is_told_to_be_one(tmp_path):
    path = tmp_path / "one.csv"
    path.write_text("".join(f"{number},users:{number % 50},8,500,1,get,0\n" for number in range(1000)))
    found = advice(path, "--by", "prefix", "--format", "twitter")
    assert found["pools"] is None and any("nothing to divide" in caveat for caveat in found["caveats"])


def test_the_page_has_the_numbers_of_the_json(trace, tmp_path):
    page = tmp_path / "report.html"
    found = json.loads(run("advise", trace, "--json", "--hit-ratio", "70%", "--html", page).stdout)
    text = page.read_text()
    made = re.search(r"<p class=soft id=made>Made by ebbtide (\S+) on ([\d-]+ [\d:]+) UTC\.</p>", text)
    assert f"ebbtide {made[1]} " in run("-V").stdout
    date = datetime.datetime.strptime(made[2], "%Y-%m-%d %H:%M").replace(tzinfo=datetime.UTC)
    assert abs((datetime.datetime.now(datetime.UTC) - date).total_seconds()) < 600
    embedded = re.search(r'<script type="application/json" id=advice>(.*?)</script>', text, re.S)
    assert json.loads(embedded[1].replace("<\\/", "</")) == found
    assert text.count("<svg") == 2 and "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text
    for plan in found["dram"]:
        assert f"{plan['hit_ratio'] * 100:.1f} %" in text


def test_the_page_is_drawn_and_fits_each_screen(trace, tmp_path, browser):  # noqa: F811
    page = tmp_path / "report.html"
    found = json.loads(run("advise", trace, "--json", "--hit-ratio", "70%", "--html", page).stdout)
    browser.get_log("browser")
    for scheme, width in [("light", 1200), ("dark", 1200), ("light", 390), ("dark", 390)]:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.get(page.as_uri())
        charts = browser.find_elements(By.CSS_SELECTOR, "figure svg")
        assert len(charts) == 2
        for chart in charts:
            assert 300 < chart.size["width"] <= 700 and chart.size["height"] > 180, chart.size
            lines = [line.get_attribute("points").split() for line in chart.find_elements(By.CSS_SELECTOR, "polyline")]
            assert sum(len(line) > 4 for line in lines) == 2, "two curves"
            # A label is at least eight pixels high.
            assert all(label.rect["height"] >= 8 for label in chart.find_elements(By.TAG_NAME, "text")[:3])
            assert (chart.value_of_css_property("filter") != "none") == (scheme == "dark")
        rows = browser.find_elements(By.CSS_SELECTOR, "#dram tr")[1:]
        cells = [row.find_elements(By.TAG_NAME, "td") for row in rows]
        hits = [f"{plan['hit_ratio'] * 100:.1f} %" for plan in found["dram"]]
        latency = [f"{plan['mean_latency_ms']:.3f} ms" for plan in found["dram"]]
        assert ([row[2].text for row in cells], [row[4].text for row in cells]) == (hits, latency)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.get_log("browser") == []
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get("about:blank")


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["--hit-ratio", "120%"], "--hit-ratio"),
        (["--budget", "0"], "--budget"),
        (["--dram-price", "0"], "--dram-price"),
        (["--flash-dwpd", "0"], "--flash-dwpd"),
        (["--slab-factor", "1"], "--slab-factor"),
        (["--budget", "1e308", "--dram-price", "1"], "--budget 1e308: give a number from 1e-9 to 1e12"),
        (["--dram-price", "1e-300"], "--dram-price 1e-300: give a number from 1e-9"),
        (["--slab-chunk", "8"], "--slab-chunk"),
        (["--hit-ms=-5"], "--hit-ms"),
        (["--miss-ms", "nan"], "--miss-ms"),
        (["--flash-spare=-1"], "--flash-spare"),
        (["--flash-spare", "0"], "--flash-spare 0: a drive that is full"),
        (["--flash-drive", "1m"], "--flash-drive 1 MiB: no cache has less than 4 MiB"),
        (["--hit-ms", "100", "--miss-ms", "1"], "--miss-ms 1: a miss takes longer than a hit, of --hit-ms 100"),
        (["--by", "prefix", "--memory", "1k"], "--memory 1 KiB: no cache has less than 256 KiB"),
        (["--by", "prefix", "--memory", "5t"], "--memory 5120 GiB: no cache has more than 4096 GiB"),
    ],
)
def test_contradictions_are_refused_by_name(trace, arguments, named):
    result = run("advise", trace, *arguments, check=False)
    assert result.returncode != 0 and named in result.stderr


def test_a_trace_without_requests_is_an_error(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
    result = run("advise", path, check=False)
    assert result.returncode != 0 and "request" in result.stderr


@pytest.fixture(scope="module")
def prefixed(tmp_path_factory):
    """Keys of text: a few users that are asked for all the time, and a feed of which nothing is asked for twice."""
    path = tmp_path_factory.mktemp("advise") / "prefixed.csv"
    lines = []
    for number in range(40_000):
        key = f"users:{number * 7919 % 2000}" if number % 2 else f"feed:{number}"
        lines.append(f"{number // 20},{key},{len(key)},500,1,get,0")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_memory_goes_to_the_prefix_that_earns_hits(prefixed):
    found = advice(prefixed, "--by", "prefix", "--memory", "2m")
    pools = {pool["name"]: pool for pool in found["pools"]["pools"]}
    assert pools["users"]["hit_ratio"] > 0.85 and pools["feed"]["hit_ratio"] == 0
    assert pools["users"]["memory_bytes"] > 1_000_000
    assert found["pools"]["divided_hit_ratio"] > found["pools"]["proportional_hit_ratio"] + 0.1
    assert sum(pool["memory_bytes"] for pool in pools.values()) <= 2 << 20
    assert found["pools"]["pays"] == (found["pools"]["flags"] is not None)
    assert any("prefixes deserve users" in text or "stay with one" in text for text in found["verdict"])
    text = run("advise", prefixed, "--by", "prefix", "--memory", "2m").stdout
    assert "deserves" in text and "feed" in text


@pytest.fixture(scope="module")
def skewed(tmp_path_factory):
    """Prefixes of which one deserves nearly all of the memory, and two less than a server's usual minimum of a pool."""
    path = tmp_path_factory.mktemp("advise") / "skewed.csv"
    state, lines = 1, []
    for number in range(100_000):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        kind, part = state >> 60, (state >> 20) % 2**30 / 2**30
        prefix, keys, size = [("feed", 9000, 400), ("users", int(1 + 6000 * part**6), 200), ("page", int(1 + 9000 * part**8), 2000)][
            0 if kind < 7 else 1 if kind < 13 else 2
        ]
        key = f"{prefix}:{int(part * 9000) if prefix == 'feed' else keys}"
        lines.append(f"{number // 50},{key},{len(key)},{size},1,get,0")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("mebibytes", [2, 3, 4, 8])
def test_a_server_gives_each_pool_its_advised_memory(skewed, tmp_path, mebibytes):
    """The flags by the report of `--check`, and the hits by a replay of each prefix in a cache of that size."""
    found = advice(skewed, "--by", "prefix", "--memory", f"{mebibytes}m")["pools"]
    assert found["memory_bytes"] == mebibytes << 20
    advised = {pool["name"]: pool["memory_bytes"] for pool in found["pools"]}
    assert min(advised.values()) >= found["min_pool_bytes"] and sum(advised.values()) <= mebibytes << 20
    hits = gets = 0
    for name, memory in advised.items():
        part = tmp_path / f"{name}.csv"
        run("trace", "filter", skewed, "--format", "twitter", "--prefix", name, "--output", part)
        replayed = json.loads(run("replay", part, "--memory", memory, "--json").stdout)
        hits, gets = hits + replayed["hits"], gets + replayed["gets"]
    assert abs(hits / gets - found["divided_hit_ratio"]) < 0.02, (hits / gets, found)
    if found["flags"] is None:
        return
    words = shlex.split(found["flags"])
    assert words[:3] == ["ebbtide", "-m", str(mebibytes)]
    checked = subprocess.run([EBBTIDE, "--check", *words[1:]], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked
    units = {"KiB": 1 << 10, "MiB": 1 << 20}
    given = re.findall(r"^pool +(\S+): ([0-9.]+) (KiB|MiB) for", checked.stdout, re.M)
    given = {name: float(number) * units[unit] for name, number, unit in given}
    assert given.keys() == advised.keys() | {"default"}
    for name, memory in advised.items():
        assert abs(given[name] - memory) <= max(0.02 * memory, 60 << 10), (name, given, advised)


def test_a_division_without_memory_for_the_minimums_is_refused(tmp_path):
    path = tmp_path / "pools.csv"
    rows = [f"{number // 100},{number % 500},20,300000,get,0,pool{number % 5}" for number in range(20_000)]
    path.write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n" + "\n".join(rows) + "\n")
    found = advice(path, "--by", "pool", "--memory", "5m")
    assert found["pools"] is None
    assert any("6 pools of a server, default included, need 1 MiB each with -I 512k, 6 MiB together" in text for text in found["caveats"]), found["caveats"]


def test_groups_that_a_trace_lacks_are_named(trace, prefixed):
    assert "have no prefix" in run("advise", trace, "--by", "prefix", check=False).stderr
    assert "no column `pool`" in run("advise", prefixed, "--by", "pool", check=False).stderr
    assert "--by" in run("advise", prefixed, "--memory", "1m", check=False).stderr


def test_the_smallest_cache_that_makes_sense_is_named(trace):
    found = advice(trace)
    best = max(plan["hit_ratio"] for plan in found["dram"])
    smallest = found["smallest"]
    assert best - 0.01 <= smallest["hit_ratio"] <= best
    assert all(plan["dram_bytes"] >= smallest["dram_bytes"] for plan in found["dram"] if plan["hit_ratio"] >= best - 0.01)
    assert any("hardly pays" in sentence for sentence in found["verdict"])

@pytest.fixture
def tiny(tmp_path):
    """500 objects of 320 B: less than the smallest cache holds."""
    path = tmp_path / "tiny.csv"
    rows = "".join(f"{number // 20},{number * number % 500},20,300,get,0\n" for number in range(5000))
    path.write_text(HEADER + rows)
    return path


def test_no_size_is_advised_that_a_cache_cannot_have(tiny, trace):
    least = 256 << 10
    found = advice(tiny, "--hit-ratio", "50%")
    assert found["wanted"]["dram"]["dram_bytes"] == least and found["wanted"]["dram"]["hit_ratio"] > 0.5
    assert "256 KiB of DRAM (the least of a cache), at 0.00122 USD" in found["verdict"][0]
    assert found["dram"] and all(plan["dram_bytes"] >= least for plan in found["dram"])
    # With flash, which has a least size, too.
    flags = ["--flash-price", "0.0001", "--flash-dwpd", "100000"]
    hybrid = advice(trace, "--hit-ratio", "30%", *flags)["wanted"]["hybrid"]
    assert hybrid["dram_bytes"] >= 2 * least and hybrid["flash_bytes"] >= 4 << 20


def test_a_plan_of_the_least_dram_with_flash_can_be_built(trace, tmp_path):
    flags = ["--hit-ratio", "60%", "--flash-price", "0.0001", "--flash-dwpd", "100000"]
    plan = advice(trace, *flags)["wanted"]["hybrid"]
    sizes = ["--memory", round(plan["dram_bytes"]), "--flash-size", round(plan["flash_bytes"])]
    run("replay", trace, "--flash", tmp_path / "flash", *sizes)


def test_money_for_less_than_the_least_cache_is_told(tiny):
    budget = advice(tiny, "--budget", "0.0001")
    assert budget["budget"]["dram"] is None and budget["budget"]["hybrid"] is None
    assert "0.000100 USD buy less DRAM than a cache has at least, 256 KiB" in budget["verdict"][0]


def test_prices_have_the_unit_that_was_given(trace):
    text = run("advise", trace, "--budget", "0.02", "--currency", "EUR").stdout
    assert re.search(r"^for 0.0200 EUR, .* of DRAM, at 0.0200 EUR hit", text, re.M) and "USD" not in text
    head = next(line for line in text.splitlines() if line.startswith("DRAM"))
    assert head.split()[:2] == ["DRAM", "EUR"]


def test_a_hit_ratio_that_little_memory_reaches_is_not_given_much(tmp_path):
    """Half of the gets are of fifty small objects; objects that nobody asks for again have all bytes, 1.1 GB."""
    path = tmp_path / "head.csv"
    rows = (f"{n // 100},{1000 + n},20,20000,get,0\n" if n % 2 else f"{n // 100},{n // 2 % 50},20,500,get,0\n" for n in range(110_000))
    path.write_text(HEADER + "".join(rows))
    found = advice(path, "--hit-ratio", "40%")
    first, wanted = found["footprint_bytes"] / 1000, found["wanted"]["dram"]["dram_bytes"]
    assert first > 1_000_000 and wanted < first / 2, (first, wanted)
    real = json.loads(run("replay", path, "--memory", round(wanted), "--json").stdout)
    assert real["miss_ratio"] < 0.62


def test_the_network_limits_dram_as_well_as_flash(trace):
    flags = ["--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "1000"]
    rate = advice(trace, *flags)["wanted"]
    narrow = advice(trace, *flags, "--network", f"{10 * rate['dram']['network_used'] / 2:.12f}")
    wanted = narrow["wanted"]
    assert rate["flash_pays"] and wanted["flash_pays"] and wanted["hybrid"] is not None
    assert abs(wanted["dram"]["network_used"] - 2) < 0.01 and wanted["dram"]["binding"] == "network"
    assert not any("stay with DRAM" in sentence for sentence in narrow["verdict"])
    assert any("of DRAM, at" in sentence and "with 2.0 times the network" in sentence for sentence in narrow["verdict"])
    # Flash that fails by itself is refused for that.
    worn = advice(trace, *flags[:-1], "0.001", "--network", f"{10 * rate['dram']['network_used'] / 2:.12f}")
    assert any("stay with DRAM" in sentence and "endurance" in sentence for sentence in worn["verdict"])


def test_objects_without_bytes_are_named(tmp_path):
    path = tmp_path / "empty.csv"
    path.write_text(HEADER + "0,1,0,0,get,0\n" * 10)
    refused = run("advise", path, check=False)
    assert refused.returncode == 2 and "have no bytes" in refused.stderr and "--sizes" not in refused.stderr, refused


def test_memcached_has_at_most_63_classes(trace):
    slabs = advice(trace, "--slab-factor", "1.001", "--slab-chunk", "48")["slabs"]
    # All objects are larger than the 62 classes before the last one.
    assert [one["chunk_bytes"] for one in slabs["classes"]] == [512 << 10]


def test_the_advised_command_starts_a_server_in_a_shell(tmp_path):
    """Prefixes that mean something to a shell, that are no names of pools, and memory of much less than a MiB."""
    path = tmp_path / "hostile.csv"
    prefixes = ["$(touch pwned)", "`touch pwned`", "x;y|z", "default", "l" * 70]
    lines = []
    for number in range(60_000):
        prefix = prefixes[number % 5] if number % 2 else f"feed{number % 3}"
        key = f"{prefix}:{number // 2 % 397 if number % 2 else number}"
        lines.append(f"{number // 20},{key},{len(key)},500,1,get,0")
    path.write_text("\n".join(lines) + "\n")
    found = advice(path, "--by", "prefix", "--format", "twitter", "--memory", "700k")["pools"]
    assert found["pays"], found
    words = shlex.split(found["flags"])
    assert words[0] == "ebbtide" and words[1] == "-m"
    echoed = subprocess.run(["sh", "-c", f"ebbtide() {{ printf '%s\\n' \"$@\"; }}; {found['flags']}"], cwd=tmp_path, capture_output=True, text=True)
    assert echoed.stdout.splitlines() == words[1:] and not (tmp_path / "pwned").exists()
    checked = subprocess.run([EBBTIDE, "--check", *words[1:]], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked
    weights = {word.split(":prefix=")[1].rsplit(":,", 1)[0]: int(word.rsplit("=", 1)[1]) for word in words if ":prefix=" in word}
    memory = {pool["name"]: pool["memory_bytes"] for pool in found["pools"] if pool["memory_bytes"] > 0}
    unit = max(weights[name] / memory[name] for name in weights if name in memory)
    for name in weights.keys() & memory.keys():
        assert abs(weights[name] / memory[name] / unit - 1) < 0.05, (name, weights, memory)


def flags_in(advised):
    """Each value of a field `flags`."""
    if isinstance(advised, dict):
        found = [advised["flags"]] if isinstance(advised.get("flags"), str) else []
        return found + [flags for value in advised.values() for flags in flags_in(value)]
    return [flags for value in advised for flags in flags_in(value)] if isinstance(advised, list) else []


FLAGS = re.compile(r"-m \d+(?: --flash PATH:\w+)?")
CHEAP_FLASH = ["--flash-price", "0.01", "--flash-dwpd", "100000"]


@pytest.mark.parametrize("wanted", [["--hit-ratio", "50%"], ["--hit-ratio", "85%", *CHEAP_FLASH], ["--budget", "0.02", *CHEAP_FLASH]])
def test_the_server_takes_each_advised_size(trace, tiny, wanted, tmp_path):
    page = tmp_path / "page.html"
    for path in (trace, tiny):
        found = json.loads(run("advise", path, "--json", "--html", page, "--overwrite", *wanted).stdout)
        text = run("advise", path, *wanted).stdout
        asked = found["wanted"] or found["budget"]
        assert asked["dram"]["flags"] and all(plan["flags"] for plan in found["dram"])
        told = set(flags_in(found)) | set(FLAGS.findall(text)) | set(FLAGS.findall(page.read_text()))
        assert set(flags_in(found)) <= set(FLAGS.findall(text)), "the text has the flags of the JSON"
        for flags in sorted(told):
            words = flags.replace("PATH", str(tmp_path / "flash")).split()
            checked = subprocess.run([EBBTIDE, "--check", *words], capture_output=True, text=True, timeout=60)
            assert checked.returncode == 0, (flags, checked.stderr)
        # A budget is not exceeded by its flags, and a hit ratio is not missed.
        memory = int(asked["dram"]["flags"].split()[1]) << 20
        assert memory <= asked["dram"]["dram_bytes"] if found["budget"] else memory >= asked["dram"]["dram_bytes"]


def test_a_budget_below_every_server_has_no_flags(tiny):
    found = advice(tiny, "--budget", "0.005", "--dram-price", "4")
    assert found["budget"]["dram"]["flags"] is None and found["budget"]["dram"]["dram_bytes"] > 1 << 20
    assert any("a server needs more" in sentence for sentence in found["verdict"])


def test_a_drive_is_advised_by_a_size_that_the_flag_takes(trace):
    flags = ["--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "0.001"]
    told = " ".join(advice(trace, *flags)["verdict"])
    drive = re.search(r"\(--flash-drive (\w+)\)", told)[1]
    assert advice(trace, *flags, "--flash-drive", drive)["wanted"]["flash_pays"]


def test_a_budget_beyond_all_servers_has_no_flags(tiny):
    found = advice(tiny, "--budget", "1e12", "--dram-price", "1e-9", "--flash-price", "1e-9")
    assert found["budget"]["dram"]["flags"] is None and not found["budget"]["flash_pays"]
    # 20 TiB, of which no server takes more than 4.
    found = advice(tiny, "--budget", "100000", "--dram-price", "5")
    assert found["budget"]["dram"]["flags"] is None
    assert any("no cache has more than 4096 GiB of DRAM" in sentence for sentence in found["verdict"])
    assert any("more DRAM than all objects need" in caveat for caveat in found["caveats"])


def test_flash_is_no_larger_than_its_drive(trace):
    flags = ["--hit-ratio", "0.85", "--flash-price", "0.5", "--flash-dwpd", "1000000"]
    free = advice(trace, *flags)["wanted"]
    assert free["flash_pays"] and free["hybrid"]["flash_bytes"] > 5 << 20
    bound = advice(trace, *flags, "--flash-drive", "5m")
    assert bound["wanted"]["hybrid"] is None or bound["wanted"]["hybrid"]["flash_bytes"] <= 5 << 20
    assert any("no flash larger than the drive of --flash-drive, 5 MiB" in caveat for caveat in bound["caveats"])
