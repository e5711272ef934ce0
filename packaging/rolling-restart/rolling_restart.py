#!/usr/bin/env python3
"""Restarts three nodes one by one under load, and prints the hit ratio of the whole over time and in each phase.

    rolling_restart.py --front twemproxy                 needs Debian's package nutcracker
    rolling_restart.py --front ketama                    needs pymemcache and uhashring
    rolling_restart.py --front twemproxy --cold          the same without memory files

A client reads keys by a Zipf law, look-aside: a miss is set. Each node is stopped by SIGTERM and started again with the
same memory file (-e). The next one follows when the node has answered reads again. A request that fails is a miss.
"""

import argparse
import bisect
import itertools
import json
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
NODES = 3
# A step that takes longer has failed.
PATIENCE_SECONDS = 120


def wait_for(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {PATIENCE_SECONDS} s: {what}")
        time.sleep(0.05)
    return found


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
        return True
    except OSError:
        return False


class Connection:
    """The classic text protocol, for one server or proxy; a failure closes it until the next request."""

    def __init__(self, port, timeout):
        self.port, self.timeout, self.stream = port, timeout, None

    def ask(self, request, ends):
        try:
            if self.stream is None:
                self.stream = socket.create_connection(("127.0.0.1", self.port), self.timeout)
            self.stream.sendall(request)
            answer = b""
            while not answer.endswith(ends):
                received = self.stream.recv(65536)
                if not received:
                    raise OSError("closed")
                answer += received
                if answer.startswith((b"SERVER_ERROR", b"ERROR")) and answer.endswith(b"\r\n"):
                    return None
            return answer
        except OSError:
            self.stream = None
            return None

    def get(self, key):
        answer = self.ask(b"get %s\r\n" % key.encode(), b"END\r\n")
        return answer is not None and answer.startswith(b"VALUE")

    def set(self, key, value):
        return self.ask(b"set %s 0 0 %d\r\n%s\r\n" % (key.encode(), len(value), value), b"STORED\r\n") is not None

    def stat(self, name):
        answer = self.ask(b"stats\r\n", b"END\r\n") or b""
        found = re.search(rb"STAT %s (\d+)\r\n" % name.encode(), answer)
        return int(found[1]) if found else 0


class Ketama:
    """A client that knows the ring of libmemcached."""

    def __init__(self, ports, timeout):
        try:
            from pymemcache.client.hash import HashClient
            from uhashring import HashRing
        except ImportError as error:
            raise SystemExit(f"{error}: pip install pymemcache uhashring") from error
        self.client = HashClient(
            [f"127.0.0.1:{port}" for port in ports],
            hasher=lambda: HashRing(hash_fn="ketama"),
            connect_timeout=timeout, timeout=timeout,
            retry_attempts=1, retry_timeout=0.5, dead_timeout=2,
            ignore_exc=True, default_noreply=False,
        )

    def get(self, key):
        try:
            return self.client.get(key) is not None
        except Exception:  # Any failure of the client is a failed request.
            return False

    def set(self, key, value):
        try:
            return bool(self.client.set(key, value))
        except Exception:  # As above.
            return False


class Node:
    def __init__(self, binary, port, memory_file):
        user = ["-u", "root"] if os.geteuid() == 0 else []
        file = ["-e", str(memory_file)] if memory_file else []
        self.command = [binary, *user, "-m", "64", "-l", "127.0.0.1", "-p", str(port), *file]
        self.port = port

    def start(self):
        # To append to: a look at it must not move the offset of the server.
        self.log = tempfile.TemporaryFile("a+")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=self.log)
        wait_for(lambda: self.process.poll() is not None or listens(self.port), f"{self.command} listens")
        if self.process.poll() is not None:
            raise SystemExit(f"{self.command} has not started: {self.messages()}")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_SECONDS)

    def messages(self):
        self.log.seek(0)
        return self.log.read()


class Load(threading.Thread):
    """Look-aside reads, and hits and requests of each interval and of each phase."""

    def __init__(self, client, keys, interval):
        super().__init__(daemon=True)
        self.client, self.keys, self.interval = client, keys, interval
        self.stopped = threading.Event()
        self.rows = []
        # The last one is the present one.
        self.phases = [("all nodes are there", [0, 0])]
        self.start_time = time.monotonic()

    def run(self):
        choice = random.Random(1)
        weights = list(itertools.accumulate(1 / rank for rank in range(1, len(self.keys) + 1)))
        while not self.stopped.is_set():
            key = self.keys[bisect.bisect(weights, choice.random() * weights[-1])]
            hit = self.client.get(key)
            if not hit:
                self.client.set(key, b"v" * 100)
            row = int((time.monotonic() - self.start_time) / self.interval)
            while len(self.rows) <= row:
                self.rows.append([0, 0])
            for counts in (self.rows[row], self.phases[-1][1]):
                counts[0] += hit
                counts[1] += 1

    def begin(self, phase):
        self.phases.append((phase, [0, 0]))

    def note(self, text):
        print(f"{time.monotonic() - self.start_time:7.1f} s  {text}", file=sys.stderr, flush=True)

    def requests(self):
        return sum(requests for _, requests in self.rows)


def start_proxy(folder, ports, proxy_port, stats_port, timeout):
    text = (HERE / "nutcracker.yml").read_text().replace("22121", str(proxy_port))
    text = text.replace("timeout: 500\n", f"timeout: {int(timeout * 1000)}\n")
    for number, port in enumerate(ports):
        text = text.replace(f"127.0.0.1:{11311 + number}:", f"127.0.0.1:{port}:")
    file = folder / "nutcracker.yml"
    file.write_text(text)
    words = ["nutcracker", "-c", file, "-a", "127.0.0.1", "-s", str(stats_port)]
    proxy = subprocess.Popen([*words, "-o", folder / "log", "-p", folder / "pid"], stdin=subprocess.DEVNULL)
    wait_for(lambda: listens(proxy_port), "nutcracker listens")
    return proxy


def restart_all(nodes, load, settle):
    for number, node in enumerate(nodes, 1):
        load.note(f"node {number} stops")
        load.begin(f"node {number} restarts")
        node.stop()
        node.start()
        found = re.search(r"memory (is warm: \d+ objects|starts empty[^\n]*)", node.messages())
        load.note(f"node {number} is back: {found[0] if found else 'no memory file'}")
        # The next node follows when clients read from this one again, and some time later.
        probe = Connection(node.port, PATIENCE_SECONDS)
        wait_for(lambda probe=probe: probe.stat("cmd_get") > 0, f"node {number} is read")
        load.begin(f"node {number} is read again")
        seen = load.requests()
        wait_for(lambda seen=seen: load.requests() >= seen + settle, "clients go on")


def run(options, folder):
    binary = options.ebbtide
    ports = options.ports[:NODES]
    nodes = [Node(binary, port, None if options.cold else folder / f"memory{port}") for port in ports]
    proxy = None
    try:
        for node in nodes:
            node.start()
        if options.front == "twemproxy":
            proxy = start_proxy(folder, ports, *options.ports[NODES:], options.timeout)
        connect = {
            "twemproxy": lambda: Connection(options.ports[NODES], options.timeout),
            "ketama": lambda: Ketama(ports, options.timeout),
        }[options.front]
        keys = [f"key{number}" for number in range(options.keys)]
        client = connect()
        for key in keys:
            if not client.set(key, b"v" * 100):
                raise SystemExit(f"{key} was not stored")
        load = Load(connect(), keys, options.interval)
        load.start()
        wait_for(lambda: load.requests() >= options.settle, "clients read")
        restart_all(nodes, load, options.settle)
        load.stopped.set()
        load.join(PATIENCE_SECONDS)
        reader = connect()
        # A request that fails is tried once more.
        found = sum(reader.get(key) or reader.get(key) for key in keys)
    finally:
        for process in [node.process for node in nodes if hasattr(node, "process")] + ([proxy] if proxy else []):
            process.terminate()
            process.wait(PATIENCE_SECONDS)
    return load, found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--front", choices=["twemproxy", "ketama"], default="twemproxy")
    parser.add_argument("--cold", action="store_true", help="nodes have no memory file")
    parser.add_argument("--ebbtide", default="ebbtide", help="the server's binary")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--settle", type=int, default=20_000, help="requests between two restarts")
    parser.add_argument("--interval", type=float, default=0.5, help="seconds of a row")
    parser.add_argument("--timeout", type=float, default=0.5, help="seconds that an answer may take")
    parser.add_argument("--ports", type=lambda text: [int(port) for port in text.split(",")],
                        default=[11311, 11312, 11313, 22121, 22222],
                        help="of the nodes, of the proxy and of its statistics")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        load, found = run(options, pathlib.Path(folder))
    if options.json:
        rows = [{"seconds": row * options.interval, "hits": hits, "requests": requests}
                for row, (hits, requests) in enumerate(load.rows)]
        phases = [{"phase": phase, "hits": hits, "requests": requests} for phase, (hits, requests) in load.phases]
        print(json.dumps({"rows": rows, "phases": phases, "keys": options.keys, "found_at_the_end": found}))
        return
    print(f"\n{'seconds':>8} {'requests':>9} {'hit ratio':>9}")
    for row, (hits, requests) in enumerate(load.rows):
        ratio = f"{hits / requests:9.4f}" if requests else "        -"
        print(f"{row * options.interval:8.1f} {requests:9} {ratio}")
    print(f"\n{'phase':<23} {'requests':>9} {'hit ratio':>9}")
    for phase, (hits, requests) in load.phases:
        print(f"{phase:<23} {requests:9} {hits / max(requests, 1):9.4f}")
    print(f"{found} of {options.keys} keys are there at the end")


if __name__ == "__main__":
    sys.exit(main())
