"""The memory monitor: of a cache in a control group whose neighbour takes memory, and of a process that grows itself."""

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

from harness import EBBTIDE, Server, wait_for

LIMIT_MIB = 352
CACHE_MIB = 224
NEIGHBOUR_MIB = 190
PIECE_MIB = 4
# The neighbour takes the next piece when this much is free, as it is again when the monitor has done its work.
FREE_MIB = 24
# Takes a piece for each line that it is sent, answers it, and keeps all until its input ends.
NEIGHBOUR = f"""
import sys
taken = []
for line in sys.stdin:
    taken.append(bytearray(b"x" * ({PIECE_MIB} << 20)))
    print("taken", flush=True)
"""


class Group:
    """A control group with a limit on memory, of either version."""

    def __init__(self):
        lines = pathlib.Path("/proc/self/cgroup").read_text().splitlines()
        own = {name: path for _, names, path in (line.split(":", 2) for line in lines) for name in names.split(",")}
        if "memory" in own:
            base, self.limit_file = pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"
            self.usage_file, self.cache_name = "memory.usage_in_bytes", "total_inactive_file"
            self.path = base / own["memory"].strip("/")
            # A container sees its own group as the root.
            self.path = (self.path if self.path.is_dir() else base) / f"ebbtide-test-{os.getpid()}"
        else:
            base, self.limit_file = pathlib.Path("/sys/fs/cgroup"), "memory.max"
            self.usage_file, self.cache_name = "memory.current", "inactive_file"
            self.path = base / own.get("", "").strip("/") / f"ebbtide-test-{os.getpid()}"

    def __enter__(self):
        try:
            self.path.mkdir()
        except OSError as error:
            pytest.skip(f"no control group can be made here: {error}")
        try:
            (self.path / self.limit_file).write_text(str(LIMIT_MIB << 20))
        except OSError as error:
            self.path.rmdir()
            pytest.skip(f"a control group has no limit on memory here: {error}")
        return self

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def free_mib(self):
        usage = int((self.path / self.usage_file).read_text())
        stat = dict(line.split() for line in (self.path / "memory.stat").read_text().splitlines())
        return LIMIT_MIB - (usage - int(stat[self.cache_name]) >> 20)

    def __exit__(self, *_):
        wait_for(lambda: not (self.path / "cgroup.procs").read_text().split(), "the group is empty")
        self.path.rmdir()


def fill(server):
    with server.connect() as connection:
        for number in range(CACHE_MIB * 1200):
            connection.send(b"set key%d 0 0 1000 noreply\r\n%s\r\n" % (number, b"v" * 1000))
        connection.ask(b"mn\r\n")


def limit_mib(server):
    return int(server.stat("limit_maxbytes")) >> 20


@pytest.mark.parametrize("monitored", [True, False])
def test_a_neighbour_that_takes_memory_kills_only_a_cache_without_monitor(monitored):
    monitor = ["--memory-monitor", "free,lower=32m,upper=80m,step=20%,stall=100%"] if monitored else []
    with Group() as group, Server(EBBTIDE, "-m", CACHE_MIB, *monitor) as server:
        group.add(server.process.pid)
        fill(server)
        assert limit_mib(server) == CACHE_MIB
        # Of the two the kernel takes the cache.
        pathlib.Path(f"/proc/{server.process.pid}/oom_score_adj").write_text("1000")
        neighbour = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        is_killed = lambda: server.process.poll() is not None or neighbour.poll() is not None  # noqa: E731
        try:
            group.add(neighbour.pid)
            for _ in range(NEIGHBOUR_MIB // PIECE_MIB):
                if monitored:
                    wait_for(lambda: group.free_mib() >= FREE_MIB or is_killed(), "the monitor frees memory")
                with contextlib.suppress(BrokenPipeError):
                    neighbour.stdin.write(b"next\n")
                    neighbour.stdin.flush()
                if neighbour.stdout.readline() != b"taken\n" or is_killed():
                    break
            if not monitored:
                wait_for(lambda: server.process.poll() is not None, "the kernel kills the cache for want of memory")
                assert neighbour.poll() is None
                return
            assert not is_killed()
            low = limit_mib(server)
            assert CACHE_MIB // 4 <= low < CACHE_MIB - 40, low
            with server.connect() as connection:
                assert connection.ask(b"set alive 0 0 1\r\n1\r\n") == b"STORED\r\n"
        finally:
            neighbour.communicate(b"") if neighbour.poll() is None else None
        wait_for(lambda: limit_mib(server) == CACHE_MIB or fill(server), "the cache has its memory back")


# Clients that ask and do not read: the process keeps about 64 KiB for each.
CLIENTS = 800
# For their requests, of which each has an answer of megabytes.
ASKED = b"get " + b" ".join(b"small%d" % number for number in range(100)) + b"\r\n"
# Such memory goes back to the system as soon as it is free.
RETURNS_MEMORY = {"MALLOC_MMAP_THRESHOLD_": "16384"}


def test_a_process_that_grows_shrinks_its_cache_until_it_is_small_again(tmp_path):
    flags = ["-m", CACHE_MIB, "-s", tmp_path / "socket", "-c", CLIENTS + 20]
    with Server(EBBTIDE, *flags, environment=RETURNS_MEMORY) as server:
        fill(server)
        full_mib = server.rss_bytes() >> 20
    # The clients take more than the distance to the upper limit, and then the process is below the lower one.
    lower, upper = full_mib - 8, full_mib + 16
    monitor = ["--memory-monitor", f"resident,lower={lower}m,upper={upper}m,step=10%,stall=100%"]
    with Server(EBBTIDE, *flags, *monitor, environment=RETURNS_MEMORY) as server:
        fill(server)
        assert limit_mib(server) == CACHE_MIB
        with contextlib.ExitStack() as clients:
            with server.connect() as connection:
                for number in range(100):
                    connection.ask(b"set small%d 0 0 100\r\n%s\r\n" % (number, b"v" * 100))
            for _ in range(CLIENTS):
                clients.enter_context(server.connect()).socket.sendall(100 * ASKED)
            wait_for(lambda: limit_mib(server) < CACHE_MIB, "the monitor shrinks the cache")
            wait_for(lambda: server.rss_bytes() >> 20 <= upper, "the process is below the upper limit")
            low = limit_mib(server)
            assert low >= CACHE_MIB // 4
            step = server.stat("memory_monitor_last_step", "stats ebbtide")
            assert f"MiB are resident, more than the upper limit of {upper}.0" in step, step
        wait_for(lambda: limit_mib(server) > low or fill(server), "the cache has memory back")
        step = server.stat("memory_monitor_last_step", "stats ebbtide")
        assert f"MiB are resident, less than the lower limit of {lower}.0" in step, step
