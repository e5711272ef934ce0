"""`ebbtide top`: on Ebbtide and on memcached, as one report, as JSON, and in a real terminal."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time

import pyte
import pytest

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, Server, free_port

COLUMNS, ROWS = 100, 24
# An interval with fewer gets has no hit ratio to speak of: somebody stalled.
ENOUGH_GETS = 100


def top(*args, **options):
    return subprocess.run([EBBTIDE, "top", *args], capture_output=True, text=True, timeout=PATIENCE_SECONDS, **options)


def address(server):
    return f"127.0.0.1:{server.port}"


@contextlib.contextmanager
def load(server):
    """Gets that hit three times of four, until the end."""
    stop = threading.Event()

    def work():
        with server.connect() as connection:
            connection.ask(b"set hit 0 0 5\r\nvalue\r\n")
            while not stop.is_set():
                for key in (b"hit", b"hit", b"hit", b"miss"):
                    connection.ask(b"get " + key + b"\r\n", b"END\r\n")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_one_report_without_a_terminal(either):
    deadline = time.monotonic() + PATIENCE_SECONDS
    with load(either):
        while True:
            done = top(address(either), "--interval", "0.5")
            assert (done.returncode, done.stderr) == (0, "")
            fields = dict(re.split(r" +", line, maxsplit=1) for line in done.stdout.splitlines())
            if float(fields["operations.get.per_second"]) > 2 * ENOUGH_GETS or time.monotonic() > deadline:
                break
    assert fields["target"] == address(either)
    assert fields["server"].split()[0] == ("ebbtide" if either.binary == EBBTIDE else "memcached")
    assert 60 < float(fields["hit_ratio"].removesuffix(" %")) < 90
    # Every ratio is in percent.
    ratios = {name: value for name, value in fields.items() if {"ratio", "share"} & set(re.split(r"[._]", name))}
    assert len(ratios) > 2 and all(value == "-" or value.endswith(" %") for value in ratios.values()), ratios
    assert float(fields["operations.get.per_second"]) > 0
    assert int(fields["operations.set.total"]) >= 1
    # What memcached does not tell is a dash.
    assert (fields["memory.used_bytes"] == "-") == (either.binary == MEMCACHED)


def test_json_has_one_object_per_interval(either):
    with load(either):
        running = subprocess.Popen(
            [EBBTIDE, "top", address(either), "--json", "--interval", "0.2"], stdout=subprocess.PIPE, text=True
        )
        try:
            is_enough = lambda report: report["operations_per_second"] * report["interval_seconds"] > ENOUGH_GETS  # noqa: E731
            reports = [wait_for(running, is_enough) for _ in range(3)]
        finally:
            running.kill()
            running.communicate()
    totals = [report["operations"]["get"]["total"] for report in reports]
    assert totals == sorted(totals) and totals[0] < totals[2]
    for report in reports:
        assert 0.6 < report["hit_ratio"] < 0.9
        assert report["memory"]["limit_bytes"] == 64 << 20


def test_totals_are_those_of_stats(either):
    report = json.loads(top(address(either), "--json", "--once", "--interval", "0.1").stdout)
    assert report["items"] == int(either.stat("curr_items"))
    assert report["operations"]["get"]["total"] == int(either.stat("cmd_get"))
    assert report["connections"]["limit"] == 1024


def test_flash_is_shown_if_the_server_has_some(either, tmp_path):
    assert json.loads(top(address(either), "--json", "--once", "--interval", "0.1").stdout)["flash"] is None
    options = [f"ext_path={tmp_path / 'flash'}:64m"]
    with Server(either.binary, "-o", *options) as server:
        flash = json.loads(top(address(server), "--json", "--once", "--interval", "0.1").stdout)["flash"]
        # A little is for what is no object.
        assert 60 << 20 <= flash["limit_bytes"] <= 64 << 20
        assert flash["hits"]["total"] == 0 and flash["queue"] == 0
        assert flash["health"] == ("healthy" if either.binary == EBBTIDE else None)
        with Terminal(address(server), "--interval", "0.2") as terminal:
            terminal.until(lambda screen: re.search(r"^Flash .* of 6[0-4](\.\d+)? MiB", screen, re.M), "flash")


def test_a_server_that_goes_away_and_comes_back_is_reported():
    with Server(EBBTIDE) as server:
        running = subprocess.Popen(
            [EBBTIDE, "top", address(server), "--json", "--interval", "0.1"], stdout=subprocess.PIPE, text=True
        )
        try:
            assert json.loads(running.stdout.readline())["interval_seconds"] > 0
            server.kill()
            wait_for(running, lambda report: "error" in report)
            server.bring_back()
            again = wait_for(running, lambda report: "error" not in report)
            # Another process: nothing can be said about the time between.
            assert again["operations_per_second"] is None
        finally:
            running.kill()
            running.communicate()


def wait_for(running, wanted):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        report = json.loads(running.stdout.readline())
        if wanted(report):
            return report
    raise AssertionError("it did not come")


@pytest.mark.parametrize(
    "args, message",
    [
        (["127.0.0.1:1", "--once"], "127.0.0.1:1: Connection refused"),
        (["--interval", "0"], "give seconds from 0.1 to 3600"),
    ],
)
def test_refusals_name_the_reason(args, message):
    done = top(*args)
    assert done.returncode != 0
    assert message in done.stderr
    assert done.stdout == ""


class Terminal:
    """`ebbtide top` in a terminal of its own."""

    def __init__(self, *args, columns=COLUMNS, rows=ROWS, **environment):
        self.screen = pyte.Screen(columns, rows)
        self.stream = pyte.ByteStream(self.screen)
        self.output = bytearray()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
            os.execve(EBBTIDE, [EBBTIDE, "top", *args], {**os.environ, **environment})
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        os.close(self.fd)

    def take(self):
        """Whether something came."""
        if select.select([self.fd], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                data = os.read(self.fd, 1 << 16)
                self.output += data
                self.stream.feed(data)
                return True
        return False

    def until(self, wanted, what):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self.take()
            found = wanted("\n".join(line.rstrip() for line in self.screen.display))
            if found:
                return found
        raise AssertionError(f"{what} did not come:\n" + "\n".join(self.screen.display))

    def press(self, keys):
        os.write(self.fd, keys)

    def leaves(self, key):
        """The exit code after a key."""
        os.write(self.fd, key)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            self.take()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                # A terminal gives back some kilobytes at a time.
                while self.take():
                    pass
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"{key} does not end it")


def gets(screen):
    row = re.search(r"^get +([\d.]+( [kM])?)/s +([\d.]+( [kM])?) ", screen, re.M)
    return row and row.group(3)


@pytest.mark.parametrize("key", [b"q", b"\x03"], ids=["q", "ctrl-c"])
def test_the_screen_moves_and_the_terminal_is_given_back(either, key):
    with load(either), Terminal(address(either), "--interval", "0.2") as terminal:
        first = terminal.until(gets, "a rate")
        terminal.until(lambda screen: gets(screen) not in (None, first), "another number")
        assert f"{address(either)}  up" in terminal.screen.display[0]
        assert not termios.tcgetattr(terminal.fd)[3] & termios.ECHO
        assert terminal.leaves(key) == 0
        after = termios.tcgetattr(terminal.fd)
        assert after[3] & termios.ECHO and after[3] & termios.ICANON
        # Out of the alternate screen, and the cursor is there again.
        assert terminal.output.rfind(b"\x1b[?1049l") > terminal.output.rfind(b"\x1b[?1049h") >= 0
        assert terminal.output.rfind(b"\x1b[?25h") > terminal.output.rfind(b"\x1b[?25l")


def test_the_screen_says_when_the_server_is_gone():
    with Server(EBBTIDE) as server:
        with server.connect() as connection:
            connection.ask(b"get none\r\n", b"END\r\n")
        with Terminal(address(server), "--interval", "0.2") as terminal:
            terminal.until(gets, "a rate")
            server.kill()
            terminal.until(lambda screen: "No answer for" in screen and "Connection refused" in screen, "the news")
            assert gets("\n".join(terminal.screen.display)), "the last numbers stay"
            server.bring_back()
            terminal.until(lambda screen: "No answer" not in screen, "the server")
            assert terminal.leaves(b"q") == 0


def row(pattern):
    return lambda screen: re.search(pattern, screen, re.M)


def test_keys_switch_views_and_sort_them():
    with Server(EBBTIDE, "--admin", f"127.0.0.1:{free_port()}", "--pool", "users:prefix=user:") as server:
        with load(server), Terminal(address(server), "--interval", "0.2", columns=120) as terminal:
            terminal.until(gets, "a rate")
            assert not row(r"^incr ")("\n".join(terminal.screen.display)), "a command that nobody sends"
            terminal.press(b"2")
            terminal.until(row(r"^get .*\d (us|ms) .* %"), "the latency of gets")
            terminal.press(b"s")
            terminal.until(row(r"^command .* p99 v"), "the mark of the sorted column")
            terminal.press(b"r")
            terminal.until(row(r"^command .* p99 \^"), "the other order")
            terminal.press(b"3")
            # Three of four gets are of it; it has a size, and no end.
            terminal.until(row(r"^hit +\S+( k)?/s +7\d\.\d % +100\.0 % +\d+ B +-"), "the hot key")
            terminal.until(row(r"^miss .* 0\.0 % +- "), "the key that misses")
            with server.connect() as connection:
                # What is overwritten after a flush is not counted as flushed.
                connection.ask(b"set flushed 0 0 5\r\nvalue\r\n")
                connection.ask(b"flush_all\r\n")
                connection.ask(b"set hit 0 0 5\r\nvalue\r\n")
            terminal.press(b"\t")
            terminal.until(row(r"^reason .* in all"), "why objects left")
            terminal.until(row(r"^flushed "), "the reason")
            terminal.press(b"5")
            terminal.until(lambda screen: row(r"^default ")(screen) and row(r"^users ")(screen), "both pools")
            terminal.press(b"6")
            # One object that does not expire, in memory of its own; its key and value are ten bytes and some metadata.
            terminal.until(row(r"^never +\d+(\.\d+)? KiB +1 "), "memory by TTL")
            terminal.until(row(r"^8 B to 16 B +\d+ B +1 "), "memory by size")
            terminal.until(row(r"^hit +\d+ B +\d+\.\d+ % +-"), "the largest object with its hit ratio")
            terminal.press(b"?")
            terminal.until(row(r"^1 to 6, Tab +switch the view"), "the keys")
            terminal.press(b"?1")
            terminal.until(gets, "the overview")
            assert terminal.leaves(b"q") == 0


def test_memcached_has_the_same_views():
    with Server(MEMCACHED) as server:
        with load(server), Terminal(address(server), "--interval", "0.2", columns=120) as terminal:
            terminal.press(b"2")
            terminal.until(row(r"^get +\S+( k)?/s +- +\d"), "gets without a latency")
            terminal.press(b"3")
            terminal.until(row(r"^No hot keys: only Ebbtide tells this\."), "the reason")
            assert terminal.leaves(b"\x1b") == 0


def test_small_terminals_and_those_without_colors(either):
    with load(either), Terminal(address(either), "--interval", "0.2", columns=20, rows=10) as terminal:
        terminal.until(row(r"^Hit ratio +\d+"), "the hit ratio")
        terminal.press(b"2")
        terminal.until(row(r"^get +\S+( k)?/s"), "the rate of gets")
        terminal.press(b"?")
        terminal.until(row(r"^1 to 6, Tab"), "the keys")
        assert terminal.leaves(b"q") == 0
    with load(either), Terminal(address(either), "--interval", "0.2", columns=160, LC_ALL="C", NO_COLOR="1") as terminal:
        terminal.until(row(r"^Memory .*[#.]{5}"), "a bar of ASCII")
        terminal.until(row(r"command +per second v"), "the table beside the overview")
        assert terminal.leaves(b"q") == 0
        assert not re.search(rb"\x1b\[[0-9;]*(3[0-8]|9[0-7])(;[0-9;]*)?m", terminal.output), "a color"
        assert not [byte for byte in terminal.output if byte > 0x7F], "not ASCII"
