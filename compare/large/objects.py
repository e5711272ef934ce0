"""Very many small objects in a server with a memory file: the fill, the growth of the index, latencies of sets beside it
and in the full store, the clean stop and the warm start. A value that was set before the stop must be there after it."""
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import client
import results
import servers
from network.setup import CORES

KEY_BYTES, VALUE_BYTES = 16, 32
# All-in, with 19 bytes of overhead in a full store, and a tenth that stays free.
BYTES_PER_OBJECT = 76
# Objects per second and core that a fill over loopback sets at least, with the client on half of the cores.
FILL_PER_CORE = 110_000
CHECKED = 1000
COLUMNS = ["what", "value", "unit"]


class StoredServer(servers.Server):
    """Ebbtide with a memory file. Knows how long the start took until the first answer."""

    def _flags(self):
        user = ["-u", "root"] if os.geteuid() == 0 else []
        return ["-p", str(self.port), "-l", "127.0.0.1", "-U", "0", *user]

    def _start(self, command):
        began = time.monotonic()
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=self.log)
        while time.monotonic() < began + 180:
            try:
                self.connection = self.connect()
                self.start_seconds = time.monotonic() - began
                return
            except OSError:
                if self.process.poll() is not None:
                    break
                time.sleep(0.002)
        self.process.kill()
        self.process.wait()
        raise SystemExit(f"does not listen: {' '.join(command)}\n{self.said()}")

    def connect(self):
        """A connection that has been answered."""
        connection = socket.create_connection(("127.0.0.1", self.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(b"version\r\n")
        if not connection.recv(100).startswith(b"VERSION"):
            raise OSError("no answer")
        return connection

    def said(self):
        self.log.seek(0)
        return self.log.read().decode(errors="replace")

    def stop(self):
        began = time.monotonic()
        self.connection.close()
        self.process.terminate()
        self.process.wait(timeout=180)
        self.stop_seconds = time.monotonic() - began


class Prober(threading.Thread):
    """Sets an object every millisecond while others load the server, and takes the latency and the size of the index.
    Python adds some tens of microseconds to each: stalls are seen, not the shortest latencies."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.connection = server.connect()
        self.stats = server.connect()
        self.over = threading.Event()
        self.latencies, self.growth = [], []

    def run(self):
        value = b"v" * VALUE_BYTES
        next_growth = began = time.monotonic()
        number = 0
        while not self.over.wait(0.001):
            number += 1
            start = time.perf_counter()
            self.connection.sendall(b"set probe%07d 0 0 %d\r\n%s\r\n" % (number % 100_000, VALUE_BYTES, value))
            answer = self.connection.recv(100)
            self.latencies.append((time.perf_counter() - start) * 1e6)
            if not answer.startswith(b"STORED"):
                raise RuntimeError(f"a set was answered by {answer!r}")
            if time.monotonic() > next_growth:
                found = ask_stats(self.stats, b"stats ebbtide\r\n")
                self.growth.append((time.monotonic() - began, int(found.get("index_bytes", 0))))
                next_growth += 0.5

    def finish(self):
        self.over.set()
        self.join(30)
        self.latencies.sort()

    def latency(self, share):
        return self.latencies[min(int(len(self.latencies) * share), len(self.latencies) - 1)]


def ask_stats(connection, command):
    connection.sendall(command)
    text = b""
    while not text.endswith(b"END\r\n"):
        text += connection.recv(65536)
    return dict(line.split(None, 2)[1:3] for line in text.decode().splitlines() if line.startswith("STAT"))


class Folder:
    """Where the memory file lies: a tmpfs with enough free memory, else one that is mounted, else a disk."""

    def __init__(self, size):
        self.mounted = False
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="large-", dir=self._place(size)))
        self.kind = "tmpfs"
        if on_tmpfs(self.path):
            return
        options = f"size={size},mode=0700"
        for wanted in [f"{options},huge=within_size", options]:
            mount = ["mount", "-t", "tmpfs", "-o", wanted, "none", str(self.path)]
            if shutil.which("mount") and subprocess.run(mount, capture_output=True).returncode == 0:
                self.mounted = True
                return
        self.kind = "disk"

    @staticmethod
    def _place(size):
        shared = pathlib.Path("/dev/shm")
        fits = shared.is_dir() and on_tmpfs(shared) and shutil.disk_usage(shared).free > size
        return shared if fits else None

    def remove(self):
        if self.mounted:
            subprocess.run(["umount", str(self.path)], check=False)
        shutil.rmtree(self.path, ignore_errors=True)


def on_tmpfs(path):
    mounts = [line.split()[1:3] for line in pathlib.Path("/proc/mounts").read_text().splitlines()]
    real = os.path.realpath(path)
    within = [(point, kind) for point, kind in mounts if point == "/" or f"{real}/".startswith(f"{point}/")]
    return bool(within) and max(within, key=lambda mount: len(mount[0]))[1] == "tmpfs"


def available_bytes():
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))


def measure(options, deadline):
    rows = results.Rows("large", "objects", COLUMNS)
    # Half of the time is the fill's.
    by_time = int((deadline - time.monotonic()) / 2 * len(CORES) * FILL_PER_CORE)
    by_memory = available_bytes() // 2 // BYTES_PER_OBJECT
    objects = max(min(options.objects, by_time, by_memory), 100_000)
    memory = max(objects * BYTES_PER_OBJECT, 64 << 20)
    folder = Folder(memory + (64 << 20))
    try:
        server_threads = max(len(CORES) // 2, 1)
        flags = ["-m", memory >> 20, "-t", server_threads, "-e", folder.path / "memory"]
        note(rows, "memory file", folder.kind, "")
        note(rows, "objects", objects, "")
        note(rows, "server threads", server_threads, "")
        server = StoredServer(servers.EBBTIDE, flags, CORES[:server_threads])
        try:
            fill(rows, server, objects, server_threads)
            loaded(rows, server, objects, server_threads)
            write_known(server)
        finally:
            server.stop()
        note(rows, "clean stop", f"{server.stop_seconds:.2f}", "s")
        server = StoredServer(servers.EBBTIDE, flags, CORES[:server_threads])
        try:
            warm(rows, server, objects, server_threads)
        finally:
            server.stop()
    finally:
        folder.remove()


def note(rows, what, value, unit):
    rows.add(what=what, value=value, unit=unit)
    print(f"{what}: {value} {unit}", flush=True)


def load(server_threads):
    beside = CORES[server_threads:] or CORES
    return beside, ["--connections", max(8 * server_threads, len(beside)), "--threads", len(beside)]


def fill(rows, server, objects, server_threads):
    beside, flags = load(server_threads)
    prober = Prober(server)
    prober.start()
    report = bench(server, "--popularity", "scan", "--keys", objects, "--requests", objects, "--get-ratio", 0,
                   "--pipeline", 64, *flags, cores=beside)
    prober.finish()
    note(rows, "fill", f"{report['ops_per_second'] / 1e6:.2f}", "M sets/s")
    note(rows, "fill time", f"{report['seconds']:.1f}", "s")
    for name, share in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)]:
        note(rows, f"set beside the fill, {name}", f"{prober.latency(share):.0f}", "us")
    for seconds, size in prober.growth:
        note(rows, f"index after {seconds:.1f} s", f"{size / 2**20:.1f}", "MiB")
    note(rows, "objects held", server.items(), "")
    note(rows, "evictions", server.evictions(), "")
    note(rows, "bytes resident per object", f"{server.resident_bytes() / max(server.items(), 1):.1f}", "B")


def loaded(rows, server, objects, server_threads):
    """Overwrites and gets in the full store: what a set takes at a fixed pace, and how many gets there are."""
    beside, flags = load(server_threads)
    paced = bench(server, "--popularity", "uniform", "--keys", objects, "--get-ratio", 0, "--rate", 100_000 if
                  len(CORES) > 4 else 5_000, "--seconds", 3, *flags, cores=beside)
    for name in ["p50_us", "p99_us", "p999_us", "max_us"]:
        note(rows, f"set at {paced['rate']:.0f}/s, {name[:-3]}", f"{paced['set_latency'][name]:.0f}", "us")
    multigets(rows, server, objects, server_threads, "before the stop")


def multigets(rows, server, objects, server_threads, when):
    beside, flags = load(server_threads)
    report = bench(server, "--popularity", "uniform", "--keys", objects, "--get-ratio", 1, "--batch", 100,
                   "--pipeline", 2, "--seconds", 2, *flags, cores=beside)
    note(rows, f"gets {when}", f"{report['ops_per_second'] / 1e6:.2f}", "M keys/s")
    note(rows, f"hit ratio {when}", f"{report['hit_ratio']:.5f}", "")


def bench(server, *arguments, cores):
    return client.bench(server, *arguments, "--value-size", VALUE_BYTES, cores=cores, key_bytes=KEY_BYTES)


def known(number):
    return b"known%d" % number, b"value of %d" % (number * 7919)


def write_known(server):
    for number in range(CHECKED):
        key, value = known(number)
        server.connection.sendall(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        if server.connection.recv(100) != b"STORED\r\n":
            raise RuntimeError("a set was refused")


def warm(rows, server, objects, server_threads):
    note(rows, "start until the first answer", f"{server.start_seconds:.2f}", "s")
    print(server.said().strip(), flush=True)
    found = 0
    for number in range(CHECKED):
        key, value = known(number)
        server.connection.sendall(b"get %s\r\n" % key)
        text = b""
        while not text.endswith(b"END\r\n"):
            text += server.connection.recv(4096)
        found += text == b"VALUE %s 0 %d\r\n%s\r\nEND\r\n" % (key, len(value), value)
    note(rows, f"of {CHECKED} values the same after the start", found, "")
    note(rows, "objects after the start", server.items(), "")
    multigets(rows, server, objects, server_threads, "after the start")
