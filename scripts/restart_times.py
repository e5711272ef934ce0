#!/usr/bin/env python3
"""Measures restarts and the cost of a memory file.

    scripts/restart_times.py restart      stop, start to first hit, objects lost: mapped file, the same with all values
                                          checked, saved file, memcached -e
    scripts/restart_times.py throughput   gets and sets with a mapped file beside anonymous memory, same rounds
                                          with --small-index also with the index on small pages
    scripts/restart_times.py empty        start of an empty 16 GiB mapped file to the first answer
    scripts/restart_times.py flash        start to the first answer with full flash, after a stop and after a kill; the
                                          flash is a file in `--disk`, of each size in `--gigabytes`

Objects have 20 bytes of key and 40 bytes of value. "start" is the time from the start of the process to the first hit,
"values checked" counts keys drawn at random that had the right value after the restart. `--folder` lies on a tmpfs,
`--disk` on another file system. The tmpfs needs 180 bytes per object. The times include what other processes on the
machine take.
"""
import argparse
import multiprocessing
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from client import bench
from servers import EBBTIDE, Server, free_port

MEMCACHED = "/usr/bin/memcached"
BATCH = 20_000
CHECKED = 20_000
# Memory per object of 60 bytes: memcached's slab class for it, with its hash table, is the largest.
OBJECT_BYTES = 180


def value(number):
    return b"%-40d" % (number * 7919)


def key(number):
    return b"key-%016d" % number


def connect(port):
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def fill(port, numbers):
    connection = connect(port)
    for first in range(numbers.start, numbers.stop, BATCH):
        batch = range(first, min(first + BATCH, numbers.stop))
        connection.sendall(b"".join(b"set %s 0 0 40 noreply\r\n%s\r\n" % (key(n), value(n)) for n in batch))
        ask(connection, b"version\r\n", b"\r\n")


def ask(connection, command, end):
    connection.sendall(command)
    answer = b""
    while not answer.endswith(end):
        part = connection.recv(1 << 20)
        if not part:
            raise SystemExit(f"the server closed the connection after {command[:60]}")
        answer += part
    return answer


def stat(port, name):
    for line in ask(connect(port), b"stats\r\n", b"END\r\n").decode().splitlines():
        if line.startswith(f"STAT {name} "):
            return int(line.split()[2])
    raise SystemExit(f"no {name}")


def items(port):
    return stat(port, "curr_items")


def first_hit(process, port, number):
    """Waits for the answer to a get; whether it was a hit."""
    while process.poll() is None:
        try:
            connection = connect(port)
            return b"VALUE" in ask(connection, b"get %s\r\n" % key(number), b"END\r\n")
        except OSError:
            time.sleep(0.001)
    raise SystemExit(f"{process.args} ended with {process.returncode}")


def checked(port, objects):
    connection, drawn = connect(port), random.Random(1)
    right = found = 0
    for _ in range(CHECKED // 100):
        for number in drawn.sample(range(objects), 100):
            answer = ask(connection, b"get %s\r\n" % key(number), b"END\r\n")
            found += answer != b"END\r\n"
            right += value(number) in answer
    if right != found:
        raise SystemExit(f"{found - right} wrong values")
    return f"{right} of {CHECKED}"


def process_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(command, log):
    return subprocess.Popen(list(map(str, command)), stdout=log, stderr=log)


def restart_row(name, program, path, objects, clients, is_touched=False):
    megabytes = max(64, objects * OBJECT_BYTES >> 20)
    port = free_port()
    user = ["-u", "root"] if os.geteuid() == 0 else []
    command = [program, *user, "-p", port, "-l", "127.0.0.1", "-U", 0, "-m", megabytes, "-e", path]
    if program != MEMCACHED:
        command += ["--admin", "off"]
    with tempfile.TemporaryFile() as log:
        process = start(command, log)
        first_hit(process, port, 0)
        share = -(-objects // clients)
        parts = [range(at, min(at + share, objects)) for at in range(0, objects, share)]
        with multiprocessing.Pool(clients) as pool:
            pool.starmap(fill, [(port, part) for part in parts])
        before = items(port)
        began = time.monotonic()
        process.send_signal(signal.SIGUSR1)
        process.wait()
        stop = time.monotonic() - began
        held = path.stat().st_blocks * 512
        # memcached takes a start within two seconds for a clock that was set back, and begins empty.
        time.sleep(3)
        if is_touched:
            path.touch()
        began = time.monotonic()
        process = start(command, log)
        first_hit(process, port, objects - 1)
        took = time.monotonic() - began
        processor = process_seconds(process)
        after = items(port)
        right = checked(port, objects)
        process.kill()
        process.wait()
    for file in path.parent.glob(path.name + "*"):
        file.unlink()
    print(f"| {name} | {objects:,} | {held / 2**20:,.0f} MiB | {stop:.2f} s | {took:.2f} s | {processor:.2f} s | {before - after:,} | {right} |",
          flush=True)


def restart(args):
    print("| memory file | objects | file | stop | start | its processor time | lost | values checked |\n|---|---|---|---|---|---|---|---|")
    for objects in args.objects:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder, tempfile.TemporaryDirectory(dir=args.disk) as disk:
            os.chmod(folder, 0o777)
            restart_row("mapped", args.binary, pathlib.Path(folder) / "memory", objects, args.clients)
            restart_row("mapped, written to", args.binary, pathlib.Path(folder) / "memory", objects, args.clients, True)
            restart_row("saved", args.binary, pathlib.Path(disk) / "memory", objects, args.clients)
            if shutil.which(MEMCACHED):
                restart_row("memcached -e", MEMCACHED, pathlib.Path(folder) / "memcached", objects, args.clients)


class SmallPages(Server):
    """A server without huge pages of anonymous memory: its index lies on small ones, as in a file on such a tmpfs."""

    def _start(self, command):
        wrapper = "import ctypes, os, sys; ctypes.CDLL(None).prctl(41, 1, 0, 0, 0); os.execvp(sys.argv[1], sys.argv[1:])"
        super()._start([sys.executable, "-c", wrapper, *command])


def throughput(args):
    keys = args.objects[0]
    modes = ["anonymous", "mapped"] + (["small index"] if args.small_index else [])
    columns = [f"{kind}, {mode}" for kind in ("get", "set") for mode in modes]
    print(f"{keys:,} keys, values of 40 bytes, pipeline of 64; operations per second, ratio to the mode before")
    print("| round | " + " | ".join(columns) + " |\n|" + "---|" * (len(columns) + 1))
    for number in range(args.rounds):
        rates = {}
        for mode in modes if number % 2 == 0 else reversed(modes):
            with tempfile.TemporaryDirectory(dir=args.folder) as folder:
                os.chmod(folder, 0o777)
                flags = ["-m", max(64, keys * OBJECT_BYTES >> 20), "--admin", "off"]
                kind = SmallPages if mode == "small index" else Server
                server = kind(args.binary, flags + (["-e", f"{folder}/memory"] if mode != "anonymous" else []))
                common = ["--keys", keys, "--value-size", 40, "--pipeline", 64]
                bench(server, *common, "--popularity", "scan", "--requests", keys, "--get-ratio", 0)
                for kind, ratio in (("get", 1), ("set", 0)):
                    report = bench(server, *common, "--requests", args.requests, "--get-ratio", ratio)
                    rates[kind, mode] = report["requests"] / report["seconds"]
                server.process.kill()
                server.process.wait()
        cells = [f"{number + 1}"]
        for kind in ("get", "set"):
            cells.append(f"{rates[kind, modes[0]]:,.0f}")
            cells += [f"{rates[kind, mode]:,.0f} ({rates[kind, mode] / rates[kind, before]:.3f})"
                      for before, mode in zip(modes, modes[1:])]
        print(f"| {' | '.join(cells)} |", flush=True)


def empty(args):
    for _ in range(args.rounds):
        with tempfile.TemporaryDirectory(dir=args.folder) as folder, tempfile.TemporaryFile() as log:
            os.chmod(folder, 0o777)
            port = free_port()
            user = ["-u", "root"] if os.geteuid() == 0 else []
            command = [args.binary, *user, "-p", port, "-l", "127.0.0.1", "--admin", "off", "-m", args.megabytes]
            began = time.monotonic()
            process = start([*command, "-e", f"{folder}/memory"], log)
            first_hit(process, port, 0)
            print(f"{args.megabytes} MiB, empty: first answer after {(time.monotonic() - began) * 1000:.0f} ms", flush=True)
            process.kill()
            process.wait()


class Target:
    """What `bench` needs of a server."""

    protocol = "memcached"

    def __init__(self, process, port):
        self.process, self.port = process, port

    def processor_seconds(self):
        return process_seconds(self.process)


def flash_row(args, gigabytes, value_bytes):
    with tempfile.TemporaryDirectory(dir=args.disk) as folder, tempfile.TemporaryFile() as log:
        port = free_port()
        user = ["-u", "root"] if os.geteuid() == 0 else []
        command = [args.binary, *user, "-p", port, "-l", "127.0.0.1", "--admin", "off", "-m", 64 * gigabytes]
        command += ["--flash", f"{folder}/flash:{gigabytes}g", "--flash-drain-seconds", 0, "--flash-demotion-wait", 10000]
        process = start(command, log)
        first_hit(process, port, 0)
        keys = gigabytes * (1 << 30) * 6 // 5 // (value_bytes + 60)
        bench(Target(process, port), "--keys", keys, "--value-size", value_bytes, "--pipeline", 64, "--popularity", "scan",
              "--requests", keys, "--get-ratio", 0)
        cells = []
        for end in (signal.SIGTERM, signal.SIGKILL):
            process.send_signal(end)
            process.wait()
            began = time.monotonic()
            process = start(command, log)
            first_hit(process, port, 0)
            cells.append(f"{(time.monotonic() - began) * 1000:,.0f} ms, {stat(port, 'extstore_objects_used'):,} objects")
            # It has a run of its own to be killed in.
            ask(connect(port), b"set a 0 0 1\r\na\r\n", b"\r\n")
        process.kill()
        process.wait()
        print(f"| {gigabytes} GiB | {value_bytes} | {' | '.join(cells)} |", flush=True)


def flash(args):
    print("| flash | value bytes | start after a stop | after a kill |\n|---|---|---|---|")
    for gigabytes in args.gigabytes:
        for value_bytes in (300, 4096):
            flash_row(args, gigabytes, value_bytes)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["restart", "throughput", "empty", "flash"])
    parser.add_argument("--objects", default="1000000,10000000", help="numbers of objects, for throughput the first")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--disk", default=tempfile.gettempdir())
    parser.add_argument("--binary", default=EBBTIDE)
    parser.add_argument("--clients", type=int, default=2, help="processes that fill")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--small-index", action="store_true", help="throughput: also with the index on small pages")
    parser.add_argument("--megabytes", type=int, default=16_384)
    parser.add_argument("--gigabytes", type=int, nargs="+", default=[1], help="sizes of flash")
    args = parser.parse_args()
    args.objects = [int(number) for number in args.objects.split(",")]
    {"restart": restart, "throughput": throughput, "empty": empty, "flash": flash}[args.what](args)


if __name__ == "__main__":
    main()
