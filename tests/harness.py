"""Servers on free ports, and raw connections to them."""

import getpass
import itertools
import os
import pathlib
import random
import select
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
MEMCACHED = "/usr/bin/memcached"
# Another server may stand in, for instance memcached itself, to see that the tests are fair.
EBBTIDE = os.environ.get("EBBTIDE_BINARY", str(ROOT / "target/release/ebbtide"))
# Longer than anything here takes on a machine that is slow or stalls: only a failure waits for it.
PATIENCE_SECONDS = 120
# With flash: a slow device delays what is evicted, and loses none of it. The longest wait that there is.
PATIENT_FLASH = ["--flash-demotion-wait", "10000"]
# memcached refuses to run as root without being told to.
USER = ["-u", getpass.getuser()]


def candidate_ports():
    """Ports that no client gets by chance, in turn. Processes that run at the same time have different ones."""
    first = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(10_000, first) if first > 12_000 else range(first, 60_000)
    # pytest-xdist names its processes gw0, gw1 and so on.
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
    own = ports[worker::16]
    start = random.randrange(len(own))
    return itertools.cycle([*own[start:], *own[:start]])


PORTS = candidate_ports()


def is_free(port):
    try:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(type=kind) as probe:
                probe.bind(("", port))
    except OSError:
        return False
    return True


def free_port():
    """A port for TCP and UDP that no other test has been given for a while."""
    return next(port for port in PORTS if is_free(port))


def wait_for(condition, what):
    """What the condition gives once it is true."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not in time: {what}"
        time.sleep(0.02)
    return found


def memory_folder_has(mib):
    """Whether /dev/shm, which containers may limit to 64 MiB, has this much free."""
    try:
        found = os.statvfs("/dev/shm")
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= mib << 20


def open_to_others(folder):
    """Lets other users read what is in a folder of pytest's, which are for their owner only."""
    for path in (folder, *folder.parents):
        if path == pathlib.Path(tempfile.gettempdir()):
            break
        if path.stat().st_uid == os.getuid():
            path.chmod(0o755)


class Server:
    """A running server; `with` stops it. Without `-s` or `-l` in `flags` it listens on a free port of 127.0.0.1."""

    def __init__(self, binary, *flags, environment=None):
        self.binary = binary
        self.flags = [str(flag) for flag in flags]
        self.environment = {**os.environ, **(environment or {})}
        self.unix = self.flags[self.flags.index("-s") + 1] if "-s" in self.flags else None
        self.admin = self.flags[self.flags.index("--admin") + 1] if "--admin" in self.flags else None
        self.port = None
        self.process = None
        # A file, because nobody reads while the server runs, and a full pipe would stop it. To append to: a look at what is in
        # it moves the offset of the server, too.
        self.log = tempfile.TemporaryFile("a+b")

    def __enter__(self):
        # The port may be taken between the look and the start: then once more.
        for _ in range(5):
            self.port = free_port()
            if self._start():
                return self
        raise RuntimeError(f"{self.binary} {self.flags} did not start: {self.messages()}")

    def _start(self):
        where = [] if self.unix else ["-p", str(self.port)]
        if not self.unix and "-l" not in self.flags:
            where += ["-l", "127.0.0.1"]
        self.process = subprocess.Popen(
            [self.binary, *USER, *where, *self.flags],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self.log,
        )
        return self._listens()

    def kill(self):
        """As a power cut would."""
        self.process.kill()
        self.process.wait(PATIENCE_SECONDS)

    def stop(self):
        """As an operator does; returns at the end of the process."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)

    def stop_threads(self):
        """Stops the process until SIGCONT. Each thread takes the signal when it next runs, so wait for all of them."""
        self.process.send_signal(signal.SIGSTOP)
        threads = pathlib.Path(f"/proc/{self.process.pid}/task")
        states = lambda: {thread.read_text().rpartition(") ")[2][0] for thread in threads.glob("*/stat")}  # noqa: E731
        wait_for(lambda: states() == {"T"}, "all threads are stopped")

    def bring_back(self):
        """Starts it again where it was. What a killed one was writing may hold its files for as long as the disk takes."""
        wait_for(self._start_unless_in_use, "the files of the server before are free")

    def _start_unless_in_use(self):
        told = len(self.messages())
        if not self._start() and "is in use" not in self.messages()[told:]:
            raise RuntimeError(f"{self.binary} did not come back: {self.messages()}")
        return self.process.poll() is None

    def _listens(self):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.connect().close()
                return True
            except OSError:
                time.sleep(0.01)
        if self.process.poll() is None:
            self.__exit__()
        return False

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(PATIENCE_SECONDS)

    def messages(self):
        self.log.seek(0)
        return self.log.read().decode()

    def connect(self):
        return Connection(self.unix or ("127.0.0.1", self.port))

    def stat(self, name, of="stats"):
        with self.connect() as connection:
            answer = connection.ask(f"{of}\r\n".encode(), b"END\r\n")
        for line in answer.decode().splitlines():
            words = line.split(" ", 2)
            if len(words) == 3 and words[1] == name:
                return words[2]
        raise KeyError(name)

    def fetch(self, path):
        """What its HTTP port gives for this path; any other status than 200 is an error."""
        with urllib.request.urlopen(f"http://{self.admin}{path}", timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 200
            return answer.read().decode()

    def rss_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024


class Connection:
    """A socket that keeps what it has received."""

    def __init__(self, where, timeout=PATIENCE_SECONDS):
        family = socket.AF_UNIX if isinstance(where, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(timeout)
        try:
            self.socket.connect(where)
        except OSError:
            self.socket.close()
            raise
        if family == socket.AF_INET:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.closed = False

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.socket.close()

    def send(self, data):
        """Sends, and takes in answers meanwhile, so that neither side waits for the other."""
        view = memoryview(data)
        poll = select.poll()
        poll.register(self.socket, select.POLLIN | select.POLLOUT)
        deadline = time.monotonic() + self.socket.gettimeout()
        while view and not self.closed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the server takes no more")
            events = sum(event for _, event in poll.poll(left * 1000))
            if events & ~select.POLLOUT:
                self.take()
            if events & select.POLLOUT and not self.closed:
                try:
                    view = view[self.socket.send(view[: 1 << 18]) :]
                except (BrokenPipeError, ConnectionResetError):
                    self.closed = True

    def take(self):
        """One receive; notes the end of the connection."""
        try:
            data = self.socket.recv(1 << 20)
        except ConnectionResetError:
            data = b""
        self.received += data
        self.closed = self.closed or not data

    def read_until(self, end):
        """Everything up to and including `end`, or what came before the connection closed."""
        searched = 0
        while (at := self.received.find(end, searched)) < 0:
            if self.closed:
                return self.read_all()
            searched = max(0, len(self.received) - len(end))
            self.take()
        at += len(end)
        answer = bytes(self.received[:at])
        del self.received[:at]
        return answer

    def read_all(self):
        answer = bytes(self.received)
        self.received.clear()
        return answer

    def ask(self, data, end=b"\r\n"):
        self.send(data)
        return self.read_until(end)
