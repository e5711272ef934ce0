"""Flash as an operator sees it: what starts and what is refused, what is counted, what happens when the device fails."""

import fcntl
import itertools
import json
import os
import re
import subprocess
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, PATIENT_FLASH, ROOT, USER, Server, free_port, memory_folder_has, open_to_others, wait_for

MIB = 1 << 20
LARGE, SMALL = 9000, 300
GETS = "get get_aborted get_oom recache_from miss_from badcrc_from".split()
# Counts of both servers.
ALIKE = ("curr_items", "total_items", "evictions", "evicted_unfetched")


def run(*words, user=USER, folder=None):
    words = [EBBTIDE, *user, "-p", free_port(), "-l", "127.0.0.1", *words]
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=PATIENCE_SECONDS, stdin=subprocess.DEVNULL, cwd=folder)


def value_of(number, size):
    return (b"%d." % number * size)[:size]


def fill(server, large=2000, small=60000):
    """More than its memory holds."""
    with server.connect() as connection:
        for numbers, size in ((range(large), LARGE), (range(large, large + small), SMALL)):
            for number in numbers:
                connection.send(b"set key%d 7 0 %d noreply\r\n%s\r\n" % (number, size, value_of(number, size)))
        connection.ask(b"mn\r\n")


def hits(server, numbers, size):
    """How many of these are there; each with its value."""
    found = 0
    with server.connect() as connection:
        for number in numbers:
            answer = connection.ask(b"get key%d\r\n" % number, b"END\r\n")
            if answer != b"END\r\n":
                assert answer == b"VALUE key%d 7 %d\r\n%s\r\nEND\r\n" % (number, size, value_of(number, size))
                found += 1
    return found


def stats(server, topic=""):
    with server.connect() as connection:
        answer = connection.ask(f"stats {topic}".strip().encode() + b"\r\n", b"END\r\n").decode()
    return dict(line.split(" ", 2)[1:] for line in answer.splitlines() if line.startswith("STAT "))


def flash_of(server):
    return json.loads(server.fetch("/api/overview"))["flash"]


def with_flash(path, *flags):
    return Server(EBBTIDE, "-m", "12", "--flash", f"{path}:128m", *PATIENT_FLASH, "--admin", f"127.0.0.1:{free_port()}", *flags)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with with_flash(tmp_path_factory.mktemp("flash") / "file", "--flash-small-threshold", "2,share:50") as server:
        fill(server)
        yield server


def test_what_memory_has_no_space_for_is_there(server):
    before = stats(server)
    # Hardly any of them is in memory.
    large, small = hits(server, range(500), LARGE), hits(server, range(2000, 8000), SMALL)
    hits(server, range(500), LARGE)
    assert large > 20 and small > 20
    after = stats(server)
    assert int(after["get_extstore"]) - int(before["get_extstore"]) > (large + small) * 0.8
    assert int(after["recache_from_extstore"]) > int(before["recache_from_extstore"])
    own = stats(server, "ebbtide")
    assert int(own["flash_hits_large"]) > large * 0.8 and int(own["flash_hits_small"]) > small * 0.8
    # A device that stalled, as the disk of a busy machine may, is degraded for a minute.
    assert own["flash_health"] in ("healthy", "degraded")


def test_long_values_on_their_way_leave_no_memory_behind(tmp_path):
    size, count = 900_000, 250
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "-m", "64", "-t", "4", "--flash", f"{tmp_path / 'file'}:512m", *PATIENT_FLASH, "--admin", admin) as server:
        clients = [server.connect() for _ in range(8)]
        for number, client in zip(range(count), itertools.cycle(clients)):
            value = value_of(number, size)
            assert client.ask(b"set key%d 7 0 %d\r\n%s\r\n" % (number, size, value)) == b"STORED\r\n"
        there = hits(server, range(count), size)
        assert there > 100
        assert server.rss_bytes() < 100 * MIB, there
        for client in clients:
            client.close()


def test_the_counters_are_memcacheds_in_its_order(server, tmp_path):
    with Server(MEMCACHED, "-m", "64", "-o", f"ext_path={tmp_path / 'flash'}:256m") as memcached:
        theirs = [name for name in stats(memcached) if "extstore" in name]
        settings = set(stats(memcached, "settings"))
    assert [name for name in stats(server) if "extstore" in name] == theirs
    assert len(theirs) == 25 and [f"{name}_extstore" for name in GETS] == theirs[:6]
    page = (ROOT / "docs/compatibility.md").read_text().split("\n## Flash\n")[1]
    assert set(re.findall(r"\w+_extstore|extstore_\w+", page)) == set(theirs)
    shown = {name for name in stats(server, "settings") if name.startswith("ext_")}
    assert shown <= settings
    ours = "ext_item_size ext_item_age ext_low_ttl ext_recache_rate ext_wbuf_size ext_drop_unread"
    assert [name for name in stats(server, "settings") if name.startswith("ext_")] == ours.split()
    with server.connect() as connection:
        assert connection.ask(b"stats extstore\r\n") == b"END\r\n"


def test_what_flash_takes_is_not_evicted(tmp_path):
    count, value = 30_000, b"v" * 1000

    def filled(server):
        with server.connect() as connection:
            for number in range(count):
                assert connection.ask(b"set key%d 0 0 %d\r\n%s\r\n" % (number, len(value), value)) == b"STORED\r\n"
        return read(server)

    def read(server):
        found, items = stats(server), stats(server, "items")
        evicted = sum(int(items[name]) for name in items if name.endswith(":evicted"))
        return {name: int(found[name]) for name in ALIKE} | {"evicted": evicted}, found

    def is_quiet(server):
        before = stats(server)["curr_items"]
        time.sleep(0.5)
        return before == stats(server)["curr_items"]

    with Server(MEMCACHED, "-m", "16", "-o", f"ext_path={tmp_path / 'theirs'}:256m") as memcached:
        theirs, _ = filled(memcached)
    flags = ["--flash", f"{tmp_path / 'ours'}:256m", *PATIENT_FLASH, "--admin", f"127.0.0.1:{free_port()}"]
    with Server(EBBTIDE, "-m", "16", *flags) as server:
        filled(server)
        # Evictions ahead of need end a moment later.
        wait_for(lambda: is_quiet(server), "evictions end")
        ours, found = read(server)
        own = {name: int(number) for name, number in stats(server, "ebbtide").items() if number.isdigit()}
        shown = flash_of(server)
    # A device that is slow for a moment loses items in both.
    lost = own["flash_dropped"] + sum(shown["refusals"].values())
    assert ours["evictions"] == ours["evicted_unfetched"] == ours["evicted"] == own["evictions"] == lost < count / 100
    assert theirs["evictions"] == theirs["evicted"] < count / 100
    # memcached counts what it has moved to flash once more among its total_items.
    assert theirs["curr_items"] + theirs["evictions"] == ours["total_items"] == count
    # Here an item on flash is none of memory: both are told.
    assert int(found["curr_items"]) + own["demotions"] + lost == count and own["demotions"] > count / 4
    assert int(found["extstore_objects_used"]) == own["demotions"]


def test_the_counters_are_of_what_was_done(server):
    found = {name: int(value) for name, value in stats(server).items() if "extstore" in name}
    assert found["extstore_limit_maxbytes"] == flash_of(server)["capacity_bytes"] > 120 * MIB
    assert found["extstore_objects_written"] > 500
    assert found["extstore_bytes_written"] > 2 * MIB
    assert 0 < found["extstore_bytes_used"] < found["extstore_limit_maxbytes"]
    assert 0 < found["extstore_objects_used"] <= found["extstore_objects_written"]
    assert found["extstore_pages_used"] > 0 and found["extstore_pages_free"] > 0
    assert found["badcrc_from_extstore"] == 0


def test_a_reset_is_of_the_gets(server):
    # What was found on flash comes back when it is found again.
    for _ in range(2):
        hits(server, range(100), LARGE)
    hits(server, range(10000, 10300), SMALL)
    before = stats(server)
    assert int(before["get_extstore"]) > 0 and int(before["recache_from_extstore"]) > 0
    with server.connect() as connection:
        assert connection.ask(b"stats reset\r\n") == b"RESET\r\n"
    after = stats(server)
    assert int(after["get_extstore"]) < int(before["get_extstore"])
    assert int(after["recache_from_extstore"]) < int(before["recache_from_extstore"])
    assert int(after["extstore_bytes_written"]) >= int(before["extstore_bytes_written"])


def test_stats_fit_collectds_buffer_with_the_largest_numbers(server):
    with server.connect() as connection:
        answer = connection.ask(b"stats\r\n", b"END\r\n")
    longest = re.sub(rb"(?<= )\d+(?=\r\n)", b"9" * 20, answer)
    assert len(longest) < 4096


def test_the_documentation_names_every_metric_of_flash_and_no_other(server):
    page = (ROOT / "docs/flash.md").read_text()
    documented = {}
    for names, kind, labels in re.findall(r"^\| (`.*?`) \| (counter|gauge|histogram) \|(.*?)\| .* \|$", page, re.M):
        for name in re.findall(r"`(\w+)`", names):
            documented[name.removesuffix("_total")] = (kind, set(re.findall(r"`(\w+)`", labels)))
    found = {}
    for family in text_string_to_metric_families(server.fetch("/metrics")):
        if family.name.startswith("ebbtide_flash"):
            assert family.documentation
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            found[family.name] = (family.type, labels)
    assert documented == found


def test_the_metrics_agree_with_the_overview(server):
    hits(server, range(100), LARGE)
    flash = flash_of(server)
    families = {family.name: family for family in text_string_to_metric_families(server.fetch("/metrics"))}

    def value(family, **labels):
        return next(s.value for s in families[family].samples if s.labels == labels and not s.name.endswith("_created"))

    # A second look is later than the first: the device may be at work.
    later = flash_of(server)
    for cause in flash["written_bytes"]:
        written = value("ebbtide_flash_written_bytes", cause=cause)
        assert flash["written_bytes"][cause] <= written <= later["written_bytes"][cause], cause
    assert sum(flash["written_bytes"].values()) == flash["written_bytes_total"]
    assert value("ebbtide_flash_hits", store="large") == flash["hits"]["large"] > 0
    assert value("ebbtide_flash_hits", store="small") == flash["hits"]["small"]
    states = {state: value("ebbtide_flash_health", state=state) for state in ("healthy", "degraded", "failed")}
    assert sum(states.values()) == 1 and states[flash["health"]] + states[later["health"]] > 0
    assert value("ebbtide_flash_projected_life_seconds") > 0
    for reason, count in (flash["drops"] | flash["refusals"]).items():
        family = "ebbtide_flash_drops" if reason in flash["drops"] else "ebbtide_flash_refusals"
        assert value(family, reason=reason) >= count
    for cause, count in flash["ended"].items():
        assert value("ebbtide_flash_ended", cause=cause) >= count
    for direction in ("read", "write"):
        samples = [s for s in families["ebbtide_flash_transfer_duration_seconds"].samples if s.labels["direction"] == direction]
        buckets = [(float(s.labels["le"]), s.value) for s in samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets) and [c for _, c in buckets] == sorted(c for _, c in buckets)
        count = next(s.value for s in samples if s.name.endswith("_count"))
        assert buckets[-1] == (float("inf"), count) and count > 0
        latency = later["latency_us"][direction]
        assert 0 < latency["p50"] <= latency["p99"] <= latency["p999"]


def test_without_flash_nothing_is_told_of_it():
    admin = f"127.0.0.1:{free_port()}"
    with Server(EBBTIDE, "--admin", admin) as server:
        assert not [name for name in stats(server) if "extstore" in name]
        assert not [name for name in stats(server, "settings") if name.startswith("ext_")]
        assert flash_of(server) is None
        assert "ebbtide_flash" not in server.fetch("/metrics")


def life_days(path, *flags):
    with with_flash(path, *flags) as server:
        fill(server, small=0)
        wear = wait_for(lambda: (wear := flash_of(server)["wear"])["drive_writes_per_day"] > 0 and wear, "something written")
        return wear["life_days"] * wear["bytes_per_day"] * wear["device_write_amplification"] / 128 / MIB


def test_the_life_is_that_of_the_drive_that_was_named(tmp_path):
    default = life_days(tmp_path / "file")
    assert default == pytest.approx(5 * 365, rel=0.05)
    assert life_days(tmp_path / "file", "--flash-endurance", "3dwpd") == pytest.approx(3 * default, rel=0.01)
    assert life_days(tmp_path / "file", "--flash-endurance", "1tbw") == pytest.approx(1e12 / (128 * MIB), rel=0.01)


def test_the_space_to_spare_counts(tmp_path):
    for spare, is_as_expected in ((7, lambda factor: factor > 1.5), (100, lambda factor: 1 < factor < 1.5)):
        with with_flash(tmp_path / "file", "--flash-endurance", f"1dwpd,spare:{spare}", "--flash-small-threshold", "2,share:20") as server:
            fill(server, large=0)
            pages = lambda: flash_of(server)["written_bytes"]["small_pages"]  # noqa: E731
            wait_for(pages, "pages of small objects")
            # What they are is looked at each second.
            wait_for(lambda: flash_of(server)["wear"]["bytes_per_day"] > 0, "a pace")
            wait_for(lambda: is_as_expected(flash_of(server)["wear"]["device_write_amplification"]), f"with {spare} %")


@pytest.mark.parametrize(
    "flags, reason",
    [
        (["--flash-admission", "probability:0"], "policy"),
        (["--flash-admission", "reject-first:1:1m"], "policy"),
        (["--flash-admission", "history:100k:100000"], "policy"),
        (["--flash-admission", "all,min-ttl:100000"], "expires_soon"),
        (["-o", "ext_low_ttl=100000"], "expires_soon"),
        (["-o", f"ext_item_size={LARGE + 1}"], "too_small"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_admission_refuses_what_it_is_to(tmp_path, flags, reason):
    with with_flash(tmp_path / "file", *flags) as server:
        with server.connect() as connection:
            for number in range(3000):
                value = value_of(number, LARGE)
                connection.send(b"set key%d 0 1000 %d noreply\r\n%s\r\n" % (number, LARGE, value))
            connection.ask(b"mn\r\n")
        flash = wait_for(lambda: (flash := flash_of(server))["refusals"][reason] > 1000 and flash, "refusals")
        assert flash["inserted_total"] == 0
        others = [count for other, count in flash["refusals"].items() if other != reason]
        assert not any(others)


def test_the_share_of_small_objects_moves_the_boundary(tmp_path):
    regions = []
    for percent in (10, 90):
        with with_flash(tmp_path / "file", "--flash-small-threshold", f"2,share:{percent}") as server:
            found = stats(server)
            size = int(stats(server, "settings")["ext_wbuf_size"])
            regions.append((int(found["extstore_pages_free"]) + int(found["extstore_pages_used"])) * size)
    assert regions[0] > 100 * MIB and regions[1] < 20 * MIB


@pytest.mark.parametrize("spelling", ["--flash", "-o"])
def test_several_paths_are_one(tmp_path, spelling):
    names = [tmp_path / "one", tmp_path / "two"]
    flags = [word for name in names for word in ("--flash", f"{name}:64m")]
    if spelling == "-o":
        flags = ["-o", ",".join(f"ext_path={name}:64M" for name in names) + ",ext_threads=2,ext_page_size=8"]
    with Server(EBBTIDE, "-m", "12", *flags) as server:
        assert int(stats(server)["extstore_limit_maxbytes"]) > 90 * MIB
        assert [name.stat().st_size for name in names] == [64 * MIB, 64 * MIB]
        warnings = [line for line in server.messages().splitlines() if "ignored" in line]
        assert len(warnings) == (spelling == "-o")


def named(place):
    """Bad paths by what is wrong with them: path, size, and what the message must say."""
    (place / "other").write_bytes(b"precious" * 4096)
    (place / "closed").mkdir()
    (place / "link").symlink_to("absent")
    (place / "read-only").touch(0o400)
    (place / "closed").chmod(0o500)
    # Other tests may free much of the filesystem meanwhile, but not more than it has.
    whole = os.statvfs(place).f_blocks * os.statvfs(place).f_frsize
    return {
        "no folder": (place / "absent/flash", "64m", "its directory does not exist"),
        "a directory": (place, "64m", "is a directory"),
        "no file": ("/dev/null", "64m", "neither a file nor a block device"),
        "too small": (place / "flash", "1m", "needs 4194304 at least"),
        "a link to nothing": (place / "link", "64m", "is a link to absent"),
        "not ours": (place / "other", "64m", "holds what is not ours"),
        "full": (place / "flash", str(2 * whole), "bytes more, but its filesystem has"),
        "too much for the memory": (place / "flash", "3g", "increase that to"),
        "read-only": (place / "read-only", "64m", "cannot be opened for writing"),
        # Its owner may not open it, but root may.
        "what keeps nothing": (
            "/proc/self/environ",
            "64m",
            "stores nothing" if os.getuid() == 0 else "cannot be opened for writing",
        ),
        "a folder that keeps nothing": ("/proc/flash", "64m", "stores nothing"),
        "a folder that is not to be written": (place / "closed/flash", "64m", "cannot be opened for writing"),
    }


@pytest.mark.parametrize("memory, given", [("300k", "300 KiB"), ("384k", "384 KiB")])
def test_too_little_memory_for_flash_is_named_with_the_least(tmp_path, memory, given):
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp_s,key_id,key_size,value_size,op,ttl_s\n0,1,20,100,get,0\n")

    def replay(memory):
        command = [EBBTIDE, "replay", trace, "--memory", memory, "--flash", tmp_path / "flash", "--flash-size", "16m"]
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)

    message = replay(memory).stderr
    least = re.search(r"Give (\d+) KiB of memory", message)
    assert given in message and "lash" in message and least, message
    assert replay(f"{least[1]}k").returncode == 0


BAD = """no folder|a directory|a link to nothing|no file|too small|not ours|full|too much for the memory|read-only|what keeps nothing|a folder that
keeps nothing|a folder that is not to be written""".replace("\n", " ").split("|")


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_path_is_refused_and_nothing_is_changed(tmp_path, kind):
    path, size, part = named(tmp_path)[kind]
    user = USER
    if kind in ("read-only", "a folder that is not to be written") and os.getuid() == 0:
        # Root may write everything.
        user = ["-u", "nobody"]
        open_to_others(tmp_path)
        for name in ("read-only", "closed"):
            os.chown(tmp_path / name, 65534, 65534)
    before = sorted((path, path.stat().st_size) for path in tmp_path.rglob("*") if path.is_file())
    for flags in (["-m", 8, "--flash", f"{path}:{size}"], ["-m", 8, "--check", "--flash", f"{path}:{size}"]):
        done = run(*flags, user=user)
        assert done.returncode == 64, done.stderr
        line = done.stderr.strip().splitlines()[-1]
        assert part in line
        assert str(path) in line or kind == "too much for the memory"
    assert sorted((path, path.stat().st_size) for path in tmp_path.rglob("*") if path.is_file()) == before


@pytest.mark.parametrize(
    "flags, code, part",
    [
        (["--flash", "/mnt/e"], 1, "give a path and a size"),
        (["--flash", "/mnt/e:5x"], 64, "--flash /mnt/e:5x: give a number"),
        (["--flash", "/mnt/e:99999999t"], 64, "--flash /mnt/e:99999999t: the size is too large"),
        (["--flash", "flash:1"], 64, "is to have 1 bytes, but needs 4194304"),
        (["-o", "ext_path=/mnt/e"], 1, "must supply size to ext_path"),
        (["-o", "ext_path=/mnt/e:64m:low"], 1, "Unknown extstore bucket: low"),
        (["-o", "ext_path=/mnt/e:64"], 1, "no unit"),
        (["-o", "ext_threads=0"], 64, "from 1 to 256"),
        (["--flash-admission", "some"], 64, "reject-first"),
        (["--flash", "flash:64m", "--flash-admission", "probability:2"], 64, "can be 0 to 1"),
        (["--flash-endurance", "long"], 64, "600tbw"),
        (["--flash-small-threshold", "2,share:100"], 64, "from 1 to 99"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_flags_are_refused(flags, code, part, tmp_path):
    done = run(*flags, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert part in done.stderr and len(done.stderr.strip().splitlines()) <= 2


def refused_alike(folder, *flags):
    """The message of a start and of a check, which leave nothing behind."""
    before = sorted((path, path.lstat().st_size) for path in folder.rglob("*"))
    started, checked = run(*flags), run("--check", *flags)
    assert (started.returncode, checked.returncode) == (64, 64), started.stderr + checked.stderr
    message = checked.stderr.strip().splitlines()[-1]
    assert started.stderr.strip().splitlines()[-1] == message
    assert sorted((path, path.lstat().st_size) for path in folder.rglob("*")) == before
    return message


def test_what_is_in_use_is_refused_and_a_check_says_so(tmp_path):
    held, other, flags = tmp_path / "flash", f"{tmp_path / 'other'}:64m", ["-m", "12"]
    with Server(EBBTIDE, *flags, "--flash", f"{held}:64m"):
        message = refused_alike(tmp_path, *flags, "--flash", f"{held}:64m")
        assert "is in use" in message and str(held) in message
        message = refused_alike(tmp_path, *flags, "--flash", other, "--flash-deletion-log", f"{held}.removals")
        assert "is in use" in message and f"{held}.removals" in message
    for words, twice in [
        ("is named twice", ["--flash", other, "-o", f"ext_path={other}"]),
        ("one path for two files", ["--flash", other, "--flash-deletion-log", tmp_path / "other"]),
    ]:
        assert words in refused_alike(tmp_path, *flags, *twice)


def test_an_empty_or_zeroed_file_at_the_path_is_taken_and_what_has_lost_its_beginning_says_how_to_go_on(tmp_path):
    path = tmp_path / "flash"
    flags = ["-m", "12", "--flash", f"{path}:64m"]
    with Server(EBBTIDE, *flags):
        pass
    held = path.read_bytes()
    path.write_bytes(bytes(4096) + held[4096:])
    assert "to begin anew, remove the file" in refused_alike(tmp_path, *flags)
    assert path.read_bytes() == bytes(4096) + held[4096:]
    for content in (b"", bytes(64 * MIB), bytes(5000)):
        path.write_bytes(content)
        checked = run("--check", *flags)
        assert checked.returncode == 0, checked.stderr
        assert path.read_bytes() == content
        with Server(EBBTIDE, *flags) as server:
            assert "flash starts empty: it is new" in server.messages()


def test_memory_that_is_too_little_beside_flash_is_told_by_the_flags(tmp_path):
    flash = ["--flash", f"{tmp_path / 'flash'}:4m"]
    message = refused_alike(tmp_path, "-m", 64, "-I", "32m", *flash)
    assert "-m 64 -I 33554432: with --flash, 8.1 MiB of the memory" in message
    memory, value = re.search(r"increase -m to (\d+) or more, or lower -I to (\d+k)", message).groups()
    for enough in (["-m", memory, "-I", "32m"], ["-m", 64, "-I", value]):
        assert run("--check", *enough, *flash).returncode == 0
    refused_alike(tmp_path, "-m", memory, "-I", str((32 << 20) + (1 << 19)), *flash)
    assert "increase -m to" in refused_alike(tmp_path, "-m", 2, "--flash", f"{tmp_path / 'flash'}:64m")


def test_bytes_beyond_whole_blocks_are_told_of(tmp_path):
    with Server(EBBTIDE, "-m", "12", "--flash", f"{tmp_path / 'flash'}:{4 * MIB + 1}") as server:
        assert "4194304 of the 4194305 bytes are used" in server.messages()


def test_a_check_touches_nothing_and_tells_what_flash_takes(tmp_path):
    flags = ["-m", "16", "--flash", f"{tmp_path / 'flash'}:64m"]
    report = run("--check", *flags).stdout
    assert not (tmp_path / "flash").exists()
    lines = dict(line.split(None, 1) for line in report.splitlines())
    assert lines["flash"] == f"64 MiB of {tmp_path / 'flash'}"
    assert lines["memory"].startswith("16 MiB")
    with Server(EBBTIDE, *flags) as server:
        assert f"segments         {stats(server, 'ebbtide')['segments_total']} of" in report
        assert stats(server)["limit_maxbytes"] == str(16 * MIB)


def test_flags_of_flash_without_any_are_warned_of():
    with Server(EBBTIDE, "--flash-least-ttl", "5") as server:
        assert "--flash-least-ttl is an old spelling: write --flash-admission POLICY,min-ttl:SECONDS" in server.messages()
        assert "--flash-least-ttl changes nothing without flash" in server.messages()


@pytest.mark.skipif(not memory_folder_has(100), reason="no filesystem in memory, or a small one")
def test_what_works_in_a_lesser_way_is_said_at_the_start():
    path = f"/dev/shm/ebbtide-test-{os.getpid()}"
    try:
        with Server(EBBTIDE, "-m", "12", "--flash", f"{path}:64m", *PATIENT_FLASH) as server:
            direct = takes_direct(path)
            assert ("no direct I/O" in server.messages()) != direct
            assert path in server.messages() or direct
            fill(server, large=1000, small=0)
            assert hits(server, range(1000), LARGE) > 20
    finally:
        os.unlink(path)
        os.unlink(f"{path}.removals")


def takes_direct(path):
    try:
        os.close(os.open(path, os.O_RDWR | os.O_DIRECT))
        return True
    except OSError:
        return False


def test_a_device_that_fails_is_told_of_and_memory_goes_on():
    # A file in memory, which can be made to refuse everything.
    file = os.memfd_create("flash", os.MFD_ALLOW_SEALING)
    with with_flash(f"/proc/{os.getpid()}/fd/{file}") as server:
        fill(server, large=6000, small=0)
        # A machine that stalled for two seconds degrades the device for a minute.
        wait_for(lambda: server.fetch("/healthz") == "ok\n", "a healthy device")
        assert hits(server, range(100), LARGE) > 5
        told_before = len(server.messages())
        os.truncate(file, 0)
        health = lambda: flash_of(server)["health"]  # noqa: E731
        with server.connect() as connection:
            # One error is enough, and they are too few for a device that has failed.
            for number in range(100, 200):
                connection.ask(b"get key%d\r\n" % number, b"END\r\n")
                if flash_of(server)["transfers"]["read_errors_total"]:
                    break
        wait_for(lambda: health() == "degraded", "an error is noticed")
        told = lambda what: [line for line in server.messages()[told_before:].splitlines() if what in line]  # noqa: E731
        wait_for(lambda: told("flash is degraded"), "a line of it")
        text = server.fetch("/healthz")
        assert text.startswith("degraded: the device of flash had errors")
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW)
        os.truncate(file, 0)
        with server.connect() as connection:
            # A region that cannot be read is not used any more: each get is of another one. The device has failed when most
            # of ten seconds' transfers have; what went well before is to be forgotten first.
            numbers = itertools.cycle(range(200, 5000, 8))

            def failed():
                time.sleep(0.3)
                for _ in range(10):
                    answer = connection.ask(b"get key%d\r\n" % next(numbers), b"END\r\n")
                    assert answer.endswith(b"END\r\n")
                return health() == "failed"

            wait_for(failed, "that the device has failed")
            text = server.fetch("/healthz")
            assert text.startswith("degraded: the device of flash has failed")
            assert server.fetch("/readyz") == "ok\n"
            assert connection.ask(b"set fresh 0 0 5\r\nvalue\r\n") == b"STORED\r\n"
            assert connection.ask(b"get fresh\r\n", b"END\r\n") == b"VALUE fresh 0 5\r\nvalue\r\nEND\r\n"
        assert stats(server, "ebbtide")["flash_health"] == "failed"
        assert 'ebbtide_flash_health{state="failed"} 1' in server.fetch("/metrics")
        events = lambda: json.loads(server.fetch("/api/overview"))["events"]  # noqa: E731
        wait_for(lambda: any("has failed" in event["reason"] for event in events()), "an event")
        wait_for(lambda: told("flash has failed"), "a line of it")
        lines = told("flash is degraded") + told("flash has failed")
        assert len(lines) == 2 and all(f"/fd/{file}" in line and "dmesg" in line for line in lines)
    os.close(file)
