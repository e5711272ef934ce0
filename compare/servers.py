"""Starts, observes and stops the servers that are compared, each set up as its own documentation advises for a cache."""
import contextlib
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# EBBTIDE_BINARY: another program than that of this tree, as for the tests.
EBBTIDE = os.environ.get("EBBTIDE_BINARY", str(ROOT / "target/release/ebbtide"))
# For a machine without taskset.
PIN = "import os, sys; os.sched_setaffinity(0, map(int, sys.argv[1].split(','))); os.execvp(sys.argv[2], sys.argv[2:])"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def pinned(cores):
    """The prefix of a command that is to run on these cores; all of them if None."""
    if cores is None:
        return []
    pin = ["taskset", "-c"] if shutil.which("taskset") else [sys.executable, "-c", PIN]
    return [*pin, ",".join(map(str, cores))]


class Server:
    """One running server that speaks memcached's protocol."""

    protocol = "memcached"

    def __init__(self, program, flags, cores=None):
        self.port = free_port()
        self._start([*pinned(cores), program, *self._flags(), *map(str, flags)])

    def _flags(self):
        user = ["-u", "nobody"] if os.geteuid() == 0 else []
        return ["-p", str(self.port), "-l", "127.0.0.1", "-U", "0", *user]

    def _start(self, command):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(400):
            try:
                self.connection = self.connect()
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        self.process.kill()
        raise SystemExit(f"does not listen: {' '.join(command)}")

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port))

    def stats(self):
        self.connection.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            text += self.connection.recv(65536)
        return dict(line.split()[1:3] for line in text.decode().splitlines() if line.startswith("STAT"))

    def items(self):
        return int(self.stats()["curr_items"])

    def evictions(self):
        return int(self.stats()["evictions"])

    def resident_bytes(self):
        return self._status_bytes("VmRSS")

    def peak_resident_bytes(self):
        return self._status_bytes("VmHWM")

    def _status_bytes(self, name):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(name))
        return int(line.split()[1]) * 1024

    def disk_write_calls(self, bytes_each):
        """How many of its write calls were so long, the others being of 8 bytes: those that wake a thread."""
        lines = pathlib.Path(f"/proc/{self.process.pid}/io").read_text().splitlines()
        counts = {name: int(count) for name, count in (line.split(": ") for line in lines)}
        return round((counts["wchar"] - 8 * counts["syscw"]) / (bytes_each - 8))

    def processor_seconds(self):
        """What all threads have run, user and system, by the scheduler's own count in nanoseconds."""
        total = 0
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    def stop(self):
        self.connection.close()
        self.process.terminate()
        self.process.wait()


class Redis(Server):
    """Redis as a cache: nothing on disk, the least recently used of all keys is evicted."""

    protocol = "redis"

    def _flags(self):
        return ["--port", str(self.port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                "--maxmemory-policy", "allkeys-lru"]

    def stats(self):
        self.connection.sendall(b"INFO\r\n")
        text = b""
        while b"\r\n" not in text:
            text += self.connection.recv(65536)
        head, _, body = text.partition(b"\r\n")
        while len(body) < int(head[1:]) + 2:
            body += self.connection.recv(65536)
        return dict(line.split(":", 1) for line in body.decode().splitlines() if ":" in line)

    def items(self):
        database = self.stats().get("db0", "keys=0,")
        return int(database.split(",")[0].removeprefix("keys="))

    def evictions(self):
        return int(self.stats()["evicted_keys"])


def ebbtide(memory_mib, threads=1, cores=None, flags=()):
    return Server(EBBTIDE, ["-m", memory_mib, "-t", threads, *flags], cores)


def memcached(memory_mib, threads=1, cores=None, flags=()):
    return Server(program("memcached"), ["-m", memory_mib, "-t", threads, *flags], cores)


def memcached_without_crawler(memory_mib, threads=1, cores=None, flags=()):
    return memcached(memory_mib, threads, cores, ["-o", "no_lru_crawler", *flags])


def redis(memory_mib, threads=1, cores=None, flags=()):
    """More than one thread: they read, write and parse; one of them executes."""
    reads = "yes" if threads > 1 else "no"
    several = ["--io-threads", threads, "--io-threads-do-reads", reads]
    return Redis(program("redis-server"), ["--maxmemory", f"{memory_mib}mb", *several, *flags], cores)


ALL = {"ebbtide": ebbtide, "memcached": memcached, "redis": redis}


def program(name):
    found = shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is not installed: `make -C compare debian` installs it")
    return found


@contextlib.contextmanager
def running(start, *arguments, **options):
    server = start(*arguments, **options)
    try:
        yield server
    finally:
        server.stop()
