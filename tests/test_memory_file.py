"""A server with a memory file comes back with all that it had after a clean stop, and with nothing after a kill."""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from harness import EBBTIDE, PATIENCE_SECONDS, PATIENT_FLASH, ROOT, USER, Server, free_port, memory_folder_has, wait_for

OBJECTS = 5000


@pytest.fixture(params=["temporary", "tmpfs"])
def folder(request, tmp_path):
    """A folder for a file of each mode: saved, where temporary files lie on a disk, and mapped."""
    if request.param == "temporary":
        yield tmp_path
        return
    if not memory_folder_has(256):
        pytest.skip("/dev/shm has too little memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield pathlib.Path(name)


def with_file(path, *flags):
    return Server(EBBTIDE, "-m", "64", "-A", "-e", path, *flags)


def fill(connection):
    for number in range(OBJECTS):
        value = b"%d " % number * (number % 200)
        ttl = 0 if number % 2 else 3000
        connection.send(b"set key%d %d %d %d noreply\r\n%s\r\n" % (number, number, ttl, len(value), value))
    connection.send(b"set number 0 0 2 noreply\r\n41\r\nincr number 1 noreply\r\n")
    connection.send(b"set long 7 0 2000000 noreply\r\n" + b"l" * 2_000_000 + b"\r\n")
    connection.send(b"set stale 0 0 1 noreply\r\ns\r\n")
    assert connection.ask(b"md stale I T300\r\n").startswith(b"HD")
    connection.send(b"set won 0 0 1 noreply\r\nw\r\n")
    assert connection.ask(b"md won I T300\r\n").startswith(b"HD")
    assert b" W" in connection.ask(b"mg won v\r\n", b"w\r\n")
    connection.ask(b"mn\r\n")


def all_of(connection):
    """Every value with flags and CAS token, and what meta commands tell without counting as a read."""
    found = {}
    for number in range(OBJECTS):
        found[number] = connection.ask(b"gets key%d\r\n" % number, b"END\r\n")
    found["number"] = connection.ask(b"gets number\r\n", b"END\r\n")
    found["long"] = connection.ask(b"gets long\r\n", b"END\r\n")
    return found


def stopped(server, how):
    if how == "shutdown":
        with server.connect() as connection:
            connection.send(b"shutdown graceful\r\n")
            server.process.wait(PATIENCE_SECONDS)
    else:
        server.process.send_signal(how)
        server.process.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, "shutdown"])
def test_everything_is_back_after_a_clean_stop(folder, how):
    with with_file(folder / "memory", "-I", "4m") as server:
        assert re.search(r"memory file \S+ \(cold\), (mapped, with \w+ pages|saved at a stop);", server.messages())
        with server.connect() as connection:
            fill(connection)
            before = all_of(connection)
        assert all(answer.startswith(b"VALUE") for answer in before.values())
        stopped(server, how)
        assert f"{OBJECTS + 4} objects" in server.messages()
        server.bring_back()
        assert f"memory is warm: {OBJECTS + 4} objects" in server.messages()
        with server.connect() as connection:
            assert all_of(connection) == before
            assert connection.ask(b"incr number 1\r\n") == b"43\r\n"
            # Whoever asks first for a stale value wins, as before the stop.
            answer = connection.ask(b"mg stale v t\r\n", b"s\r\n")
            assert b" W" in answer and b" X" in answer
            assert 200 < int(answer.split(b" t")[1].split()[0]) <= 300
            # Others are told that it was won before the stop.
            assert b" Z" in connection.ask(b"mg won v\r\n", b"w\r\n")
        assert server.stat("curr_items") == str(OBJECTS + 4)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGUSR1])
def test_the_counters_of_the_cache_go_on_after_a_clean_stop(folder, how):
    names = ["total_items", "evictions", "reclaimed"]
    with Server(EBBTIDE, "-m", "8", "-e", folder / "memory", "--test-clock") as server:
        with server.connect() as connection:
            for number in range(OBJECTS):
                exptime = 10 if number % 2 else 0
                connection.send(b"set key%d 0 %d 3000 noreply\r\n%s\r\n" % (number, exptime, b"v" * 3000))
            assert connection.ask(b"debugtime 20\r\n") == b"OK\r\n"
        # What has expired is freed in the background.
        wait_for(lambda: int(server.stat("reclaimed")) > 0, "objects expire")
        before = {}

        def rests():
            last = dict(before)
            before.update({name: int(server.stat(name)) for name in names})
            return last == before

        wait_for(rests, "the counters stay as they are")
        assert all(before.values()) and before["total_items"] == OBJECTS, before
        stopped(server, how)
        server.bring_back()
        assert "memory is warm" in server.messages()
        assert {name: int(server.stat(name)) for name in names} == before


def test_after_a_kill_the_start_is_cold(folder):
    with with_file(folder / "memory") as server:
        with server.connect() as connection:
            assert connection.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        stopped(server, signal.SIGTERM)
        server.bring_back()
        server.kill()
        server.bring_back()
        assert "memory starts empty: the file is new, or the last run was not stopped cleanly" in server.messages()
        with server.connect() as connection:
            assert connection.ask(b"get a\r\n", b"END\r\n") == b"END\r\n"


def test_what_expired_while_the_server_was_down_is_gone(folder):
    with with_file(folder / "memory", "--test-clock") as server:
        with server.connect() as connection:
            connection.ask(b"set short 0 2 1\r\n1\r\n")
            connection.ask(b"set long 0 1000 1\r\n1\r\n")
        stopped(server, signal.SIGTERM)
        server.bring_back()
        with server.connect() as connection:
            connection.ask(b"debugtime 3\r\n")
            assert connection.ask(b"get short\r\n", b"END\r\n") == b"END\r\n"
            assert connection.ask(b"get long\r\n", b"END\r\n").startswith(b"VALUE")


@pytest.mark.parametrize("kept", ["memory", "flash"])
def test_unix_times_are_kept_over_a_restart(tmp_path, kept):
    flash = ["--flash", f"{tmp_path / 'flash'}:64m", *PATIENT_FLASH, "--flash-drain-seconds", "600"]
    flags = ["-e", tmp_path / "memory"] if kept == "memory" else flash
    with Server(EBBTIDE, "-m", "16", *flags, "--test-clock") as server:
        end = int(time.time()) + 100
        with server.connect() as connection:
            for number in range(100):
                connection.send(b"set key%d 0 %d 4000 noreply\r\n%s\r\n" % (number, end, b"v" * 4000))
            connection.ask(b"mn\r\n")
        stopped(server, signal.SIGTERM)
        server.bring_back()

        def served(connection):
            gets = (connection.ask(b"get key%d\r\n" % number, b"END\r\n") for number in range(100))
            return sum(answer.startswith(b"VALUE") for answer in gets)

        with server.connect() as connection:
            # A second and a half for the looks at all of them.
            connection.ask(b"debugtime %d\r\n" % (end - time.time() - 1.5))
            assert served(connection) == 100
            connection.ask(b"debugtime 3\r\n")
            assert served(connection) == 0


@pytest.mark.parametrize("kept", ["file", "drain", "nothing"])
def test_the_hottest_objects_survive_a_stop_with_flash(tmp_path, kept):
    flags = ["-m", "16", "--flash", f"{tmp_path / 'flash'}:64m", *PATIENT_FLASH]
    keeping = {
        "file": ["-e", tmp_path / "memory"],
        "drain": ["--flash-drain-seconds", "600"],
        "nothing": ["--flash-drain-seconds", "0"],
    }[kept]
    with Server(EBBTIDE, *flags, *keeping) as server:
        with server.connect() as connection:
            for number in range(6000):
                connection.send(b"set key%d 0 0 4000 noreply\r\n%s\r\n" % (number, b"v" * 4000))
            connection.ask(b"mn\r\n")
            hot = range(5500, 6000)
            assert all(len(connection.ask(b"get key%d\r\n" % number, b"END\r\n")) > 4000 for number in hot)
            # With a mark flash cannot hold it.
            assert connection.ask(b"set marked 0 0 1\r\ns\r\n") == b"STORED\r\n"
            assert connection.ask(b"md marked I T300\r\n").startswith(b"HD")
        stopped(server, signal.SIGTERM)
        if kept == "drain":
            objects, lost = re.search(
                r"(\d+) objects and \S+ \S+ went from memory to flash, in .*; (\d+) are lost: flash cannot hold meta",
                server.messages(),
            ).groups()
            assert int(objects) >= 500 and lost == "1"
        server.bring_back()
        with server.connect() as connection:
            found = sum(len(connection.ask(b"get key%d\r\n" % number, b"END\r\n")) > 4000 for number in hot)
            assert found < 250 if kept == "nothing" else found == 500


def test_a_drain_within_the_write_budget_counts_what_is_lost(tmp_path):
    # 2 MiB of 12: the stop writes no longer than the disk takes for them.
    budget, seconds = 32 << 10, 64
    flags = ["-m", "16", "--flash", f"{tmp_path / 'flash'}:64m", *PATIENT_FLASH]
    flags += ["--flash-admission", f"all,budget:{budget}", "--flash-drain-seconds", seconds]
    with Server(EBBTIDE, *flags) as server:
        with server.connect() as connection:
            for number in range(3000):
                connection.send(b"set key%d 0 0 4000 noreply\r\n%s\r\n" % (number, b"v" * 4000))
            connection.ask(b"mn\r\n")
        items = int(server.stat("curr_items"))
        assert server.stat("evictions") == "0" and items == 3000
        stopped(server, signal.SIGTERM)
        told = r"(\d+) objects and \S+ \S+ went from memory to flash, in .*; (\d+) are lost: the write budget was used up"
        objects, lost = map(int, re.search(told, server.messages()).groups())
        assert objects + lost == items
        # The budget counts what the device writes: an object takes 4096 bytes there, and each region has a header and an
        # index. The last step of the drain may be above the budget, by a region at most.
        assert budget * seconds * 0.93 <= objects * 4007 <= budget * seconds + (1 << 20), objects
        server.bring_back()
        with server.connect() as connection:
            gets = (connection.ask(b"get key%d\r\n" % number, b"END\r\n") for number in range(3000))
            assert sum(answer.startswith(b"VALUE") for answer in gets) == objects


def test_a_file_that_was_cut_is_cold_in_words(tmp_path):
    path = tmp_path / "memory"
    with Server(EBBTIDE, "-m", "16", "-e", path) as server:
        with server.connect() as connection:
            assert connection.ask(b"set key 0 0 5\r\nvalue\r\n", b"\r\n") == b"STORED\r\n"
        server.process.terminate()
        assert server.process.wait(PATIENCE_SECONDS) == 0
    os.truncate(path, 100_000)
    with Server(EBBTIDE, "-m", "16", "-e", path) as server:
        assert "memory starts empty: it is damaged: it ends before what it is to hold" in server.messages()


@pytest.mark.parametrize("content, named", [(b"letters", "something else"), (None, "cannot be opened")])
def test_a_file_that_cannot_be_one_is_refused(tmp_path, content, named):
    path = tmp_path / "memory" if content else tmp_path
    if content:
        path.write_bytes(content)
        os.chmod(path, 0o600)
    command = [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", "-e", str(path)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert result.returncode != 0 and named in result.stderr and str(path) in result.stderr
    if content:
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "path, named",
    [
        ("/proc/foo", "a filesystem that stores nothing, as /proc; name a file on a tmpfs or a disk"),
        ("absent/memory", "its directory does not exist; make it, or name another path"),
    ],
)
def test_a_path_for_no_file_is_refused_with_advice(tmp_path, path, named):
    line = [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", "-e", str(tmp_path / path)]
    started, checked = (
        subprocess.run([*line, *more], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        for more in ([], ["--check"])
    )
    assert started.returncode == checked.returncode != 0
    for message in (started.stderr, checked.stderr):
        assert named in message and path in message, message


def as_a_start_and_a_check(*flags):
    line = [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", *map(str, flags)]
    return [subprocess.run([*line, *more], capture_output=True, text=True, timeout=PATIENCE_SECONDS) for more in ([], ["--check"])]


def test_a_check_refuses_the_files_that_a_start_refuses(tmp_path):
    foreign, short = tmp_path / "foreign", tmp_path / "short"
    foreign.write_bytes(b"letters")
    short.write_bytes(b"EBB")
    for path in (foreign, short):
        path.chmod(0o600)
    open_to_all = tmp_path / "open"
    open_to_all.touch()
    open_to_all.chmod(0o666)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "absent")
    admin = ["--admin", f"127.0.0.1:{free_port()}"]
    cases = [["-e", path] for path in (tmp_path, foreign, short, open_to_all, link)]
    cases += [[*admin, "--history-file", path] for path in (tmp_path, foreign, tmp_path / "absent/history")]
    before = sorted((path.name, path.lstat().st_mtime_ns) for path in tmp_path.iterdir())
    for flags in cases:
        started, checked = as_a_start_and_a_check(*flags)
        assert started.returncode == checked.returncode != 0, (flags, started.stderr, checked.stdout)
        assert checked.stderr.strip().splitlines()[-1] == started.stderr.strip().splitlines()[-1], flags
    assert sorted((path.name, path.lstat().st_mtime_ns) for path in tmp_path.iterdir()) == before


def test_a_start_that_is_refused_leaves_no_file():
    if not memory_folder_has(1):
        pytest.skip("there is no /dev/shm")
    found = os.statvfs("/dev/shm")
    megabytes = (found.f_blocks * found.f_frsize >> 20) + 100
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = pathlib.Path(folder) / "memory"
        for prepare in (lambda: None, path.touch):
            prepare()
            is_there = path.exists()
            if is_there:
                path.chmod(0o600)
            started, checked = as_a_start_and_a_check("-m", megabytes, "-e", path)
            assert started.returncode == checked.returncode == 64, (started.stderr, checked.stderr)
            assert "its file system has" in checked.stderr
            assert path.exists() == is_there, "the file of somebody else stays"


def test_a_start_says_that_it_waits_for_the_file(tmp_path):
    path = tmp_path / "memory"
    line = [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", "-e", str(path)]
    with Server(EBBTIDE, "-e", path) as server:
        checked = subprocess.run([*line, "--check"], capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert checked.returncode == 0 and "in use: a start waits up to 30s" in checked.stdout, checked.stderr
        waiting = subprocess.Popen(line, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            assert f"-e {path}: waiting up to 30s" in first(waiting.stderr, "waiting")
            server.process.send_signal(signal.SIGTERM)
            assert "memory is warm" in first(waiting.stderr, "memory ")
        finally:
            waiting.send_signal(signal.SIGTERM)
            waiting.communicate(timeout=PATIENCE_SECONDS)


def first(lines, part):
    """The first of these lines that has the part."""
    return next((line for line in lines if part in line), "")


def test_check_names_the_file_and_the_monitor(tmp_path):
    command = [EBBTIDE, *USER, "--check", "-e", str(tmp_path / "memory"), "--memory-monitor", "free,lower=64m,upper=256m"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert result.returncode == 0, result.stderr
    assert str(tmp_path / "memory") in result.stdout and "free memory between 64 and 256 MiB" in result.stdout
    assert not (tmp_path / "memory").exists(), "a check makes nothing"
    assert re.search(r"its floor +16 MiB; minimums of pools and flash need 2 MiB", result.stdout), result.stdout
    with_pools = [*command, "--pool", "users:prefix=u:,min=40m"]
    result = subprocess.run(with_pools, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert result.returncode == 0, result.stderr
    assert re.search(r"its floor +16 MiB, but minimums of pools and flash need 42 MiB", result.stdout), result.stdout
    wrong = [EBBTIDE, *USER, "--check", "--memory-monitor", "free,lower=256m,upper=64m"]
    result = subprocess.run(wrong, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert result.returncode != 0 and "268435456" in result.stderr and "67108864" in result.stderr


def test_the_last_step_of_the_monitor_is_shown(tmp_path):
    admin = f"127.0.0.1:{free_port()}"
    # No host has so much free memory, so the monitor shrinks as far as the minimum of the pool lets it.
    monitor = "free,lower=900t,upper=1000t,step=50%"
    flags = ["-m", "64", "--pool", "users:prefix=u:,min=40m", "--admin", admin, "--memory-monitor", monitor]
    with Server(EBBTIDE, *flags) as server:
        with server.connect() as connection:
            told = lambda: connection.ask(b"stats ebbtide\r\n", b"END\r\n").decode()  # noqa: E731
            wait_for(lambda: "memory_monitor_last_step the cache stays at" in told(), "nothing is left to give")
            why = r"MiB of [\d.]+ wanted, the least that its pools and flash need: [\d.]+ MiB are free"
            assert re.search(rf"stays at 4\d\.\d {why}", told())
        page = server.fetch("/metrics")
        wanted, reached = (
            int(float(re.search(rf"^ebbtide_memory_monitor_{name}_bytes (\S+)", page, re.MULTILINE)[1]))
            for name in ("wanted", "reached")
        )
        assert wanted < 40 << 20 < reached == int(server.stat("limit_maxbytes"))


def test_other_threads_are_warm(folder):
    path = folder / "memory"
    for threads, found in ((1, "cold"), (4, "warm"), (2, "warm")):
        with with_file(path, "-t", threads) as server:
            assert f"memory file {path} ({found})" in server.messages()
            with server.connect() as connection:
                if found == "cold":
                    fill(connection)
                    before = all_of(connection)
                assert all_of(connection) == before
            stopped(server, signal.SIGTERM)


def test_a_second_process_waits_for_the_file_of_the_first(folder):
    path = folder / "memory"
    with with_file(path) as first:
        with first.connect() as connection:
            assert connection.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
        second = with_file(path)
        with ThreadPoolExecutor(1) as pool:
            started = pool.submit(second.__enter__)
            wait_for(lambda: second.process and str(path) in open_files(second.process.pid), "it has the file open")
            assert not started.done() and first.process.poll() is None
            stopped(first, signal.SIGTERM)
            started.result(PATIENCE_SECONDS)
        assert "memory is warm: 1 objects" in second.messages()
        second.__exit__()


def open_files(pid):
    links = pathlib.Path(f"/proc/{pid}/fd")
    with contextlib.suppress(OSError):
        return {os.readlink(link) for link in links.iterdir()}
    return set()


def test_metrics_of_file_and_monitor_are_the_documented_ones(tmp_path):
    page = (ROOT / "docs/restart.md").read_text().split("## Metrics")[1]
    documented = set(re.findall(r"`(ebbtide_memory_(?:file|monitor)_\w+)`", page))
    admin = f"127.0.0.1:{free_port()}"
    with with_file(tmp_path / "memory", "--admin", admin, "--memory-monitor", "free,lower=1m,upper=2m") as server:
        found = set(re.findall(r"^(ebbtide_memory_(?:file|monitor)_\w+) ", server.fetch("/metrics"), re.MULTILINE))
    assert found == documented and len(found) == 12


def test_an_empty_mapped_file_reserves_nothing():
    if not memory_folder_has(4200):
        pytest.skip("/dev/shm has too little memory")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = pathlib.Path(folder) / "memory"
        with Server(EBBTIDE, "-m", "4096", "-e", path) as server:
            assert path.stat().st_blocks * 512 < 4 << 20
            with server.connect() as connection:
                assert connection.ask(b"set a 0 0 1\r\n1\r\n") == b"STORED\r\n"
            assert path.stat().st_blocks * 512 < 16 << 20
        assert "mapped" in server.messages()


def test_a_mapped_file_needs_space_for_the_memory():
    if not memory_folder_has(0):
        pytest.skip("there is no /dev/shm")
    free = os.statvfs("/dev/shm")
    megabytes = (free.f_blocks * free.f_frsize >> 20) + 1024
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = f"{folder}/memory"
        command = [EBBTIDE, *USER, "-p", str(free_port()), "-l", "127.0.0.1", "-m", str(megabytes), "-e", path]
        result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    assert result.returncode != 0 and "its file system has" in result.stderr and path in result.stderr, result.stderr


def test_a_kill_during_a_stop_is_cold_or_complete(folder):
    with with_file(folder / "memory") as server:
        for round_ in range(6):
            with server.connect() as connection:
                connection.ask(b"flush_all\r\n")
                for number in range(3000):
                    connection.send(b"set key%d 0 0 500 noreply\r\n%s\r\n" % (number, b"%-500d" % (number + round_)))
                connection.ask(b"mn\r\n")
            server.process.send_signal(signal.SIGTERM)
            # The pauses differ by more than the stop takes on a fast machine; either outcome is right.
            time.sleep(round_ * 0.004)
            server.kill()
            told = len(server.messages())
            server.bring_back()
            is_warm = "memory is warm: 3000 objects" in server.messages()[told:]
            assert is_warm or "memory starts empty" in server.messages()[told:], server.messages()[told:]
            with server.connect() as connection:
                for number in range(0, 3000, 50):
                    answer = connection.ask(b"get key%d\r\n" % number, b"END\r\n")
                    right = b"VALUE key%d 0 500\r\n%s\r\nEND\r\n" % (number, b"%-500d" % (number + round_))
                    assert answer == (right if is_warm else b"END\r\n")


def test_another_version_of_the_server_stays_warm_and_another_format_is_cold(folder, tmp_path):
    """An upgrade and the rollback, as the same program with another version number in it."""
    other = tmp_path / "ebbtide"
    program = pathlib.Path(EBBTIDE).read_bytes()
    version = subprocess.run([EBBTIDE, "--version"], capture_output=True, text=True, timeout=PATIENCE_SECONDS).stdout
    number = re.search(r"ebbtide (\d+\.\d+\.\d+)", version)[1].encode()
    other.write_bytes(program.replace(b"ebbtide " + number, b"ebbtide " + number[:-1] + b"9"))
    other.chmod(0o755)
    path = folder / "memory"
    with with_file(path) as server:
        with server.connect() as connection:
            assert connection.ask(b"set a 7 0 1\r\n1\r\n") == b"STORED\r\n"
        for binary in (str(other), EBBTIDE):
            stopped(server, signal.SIGTERM)
            server.binary = binary
            told = len(server.messages())
            server.bring_back()
            is_other = b"ebbtide " + number[:-1] + b"9" in server.messages()[told:].encode()
            assert is_other == (binary == str(other)), server.messages()[told:]
            assert "memory is warm: 1 objects" in server.messages()[told:]
            with server.connect() as connection:
                assert connection.ask(b"get a\r\n", b"END\r\n") == b"VALUE a 7 1\r\n1\r\nEND\r\n"
        stopped(server, signal.SIGTERM)
        with path.open("r+b") as file:
            file.seek(8)
            file.write(b"\x63")
        told = len(server.messages())
        server.bring_back()
        assert "memory starts empty: the file has format 99" in server.messages()[told:]
