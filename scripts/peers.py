#!/usr/bin/env python3
"""Measures ebbtide beside Debian's memcached, both started here with the same flags, on loopback.

    scripts/peers.py overhead     bytes per object over key and value, in a full cache
    scripts/peers.py network      gets and sets (9:1) per second by pipeline depth, server and client on a core each
    scripts/peers.py idle         resident memory of a full server with 10,000 idle connections

Prints Markdown. Ratios carry over to other machines, absolute numbers do not. The client is `ebbtide bench --target`.
"""
import argparse
import json
import resource
import shutil
import socket
import statistics
import subprocess
import time

EBBTIDE = "target/release/ebbtide"
KEY_BYTES = 20


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    def __init__(self, program, flags, core=None):
        self.port = free_port()
        pin = ["taskset", "-c", str(core)] if core is not None else []
        user = ["-u", "nobody"]
        command = [*pin, program, "-p", str(self.port), "-l", "127.0.0.1", "-U", "0", *user, *flags]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            try:
                self.connection = socket.create_connection(("127.0.0.1", self.port))
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"{program} does not listen")

    def stats(self):
        self.connection.sendall(b"stats\r\n")
        text = b""
        while not text.endswith(b"END\r\n"):
            text += self.connection.recv(65536)
        return dict(line.split()[1:3] for line in text.decode().splitlines() if line.startswith("STAT"))

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            line = next(line for line in status if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def stop(self):
        self.connection.close()
        self.process.terminate()
        self.process.wait()


def bench(server, *arguments, core=None):
    pin = ["taskset", "-c", str(core)] if core is not None else []
    command = [*pin, EBBTIDE, "bench", "--target", f"127.0.0.1:{server.port}", "--json", *map(str, arguments)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def programs():
    return [("ebbtide", EBBTIDE), ("memcached", shutil.which("memcached"))]


def overhead(_):
    print("| server | value bytes | objects | overhead per object by -m |\n|---|---|---|---|")
    memory = 128 << 20
    for name, program in programs():
        for value in (25, 55, 230):
            server = Server(program, ["-m", "128", "-t", "1"])
            keys = 2 * memory // (KEY_BYTES + value)
            bench(server, "--popularity", "scan", "--keys", keys, "--requests", keys, "--get-ratio", 0, "--key-size",
                  KEY_BYTES, "--value-size", value, "--pipeline", 64)
            time.sleep(0.5)
            items = int(server.stats()["curr_items"])
            each = (memory - items * (KEY_BYTES + value)) / items
            print(f"| {name} | {value} | {items} | {each:.1f} |", flush=True)
            server.stop()


def network(arguments):
    depths = (1, 16, 64)
    runs = {(name, depth): [] for name, _ in programs() for depth in depths}
    for _ in range(arguments.rounds):
        for name, program in programs():
            server = Server(program, ["-m", "1024", "-t", "1"], core=0)
            common = ["--keys", 1_000_000, "--key-size", KEY_BYTES, "--value-size", 100, "--get-ratio", 0.9,
                      "--connections", 8]
            bench(server, *common, "--prefill", "--seconds", 1, "--pipeline", 64, core=1)
            for depth in depths:
                result = bench(server, *common, "--seconds", 3, "--pipeline", depth, core=1)
                runs[name, depth].append(result["ops_per_second"])
            server.stop()
    print("| pipeline | ebbtide kops/s (min to max) | memcached kops/s (min to max) | ratio of medians |\n|---|---|---|---|")
    for depth in depths:
        cells = []
        for name, _ in programs():
            values = runs[name, depth]
            cells.append(f"{statistics.median(values) / 1000:.0f} ({min(values) / 1000:.0f} to {max(values) / 1000:.0f})")
        ratio = statistics.median(runs["ebbtide", depth]) / statistics.median(runs["memcached", depth])
        print(f"| {depth} | {cells[0]} | {cells[1]} | {ratio:.2f} |")


def idle(_):
    resource.setrlimit(resource.RLIMIT_NOFILE, (12_000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    print("| server | -m | VmRSS full | VmRSS full, 10,000 idle connections |\n|---|---|---|---|")
    for name, program in programs():
        server = Server(program, ["-m", "256", "-t", "2", "-c", "11000"])
        keys = 2 * (256 << 20) // 250
        bench(server, "--popularity", "scan", "--keys", keys, "--requests", keys, "--get-ratio", 0, "--value-size", 230,
              "--pipeline", 64)
        full = server.resident_bytes()
        connections = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(10_000)]
        for connection in connections:
            connection.sendall(b"version\r\n")
        for connection in connections:
            assert connection.recv(100).startswith(b"VERSION")
        mib = lambda bytes: f"{bytes / (1 << 20):.0f} MiB"
        print(f"| {name} | 256 MiB | {mib(full)} | {mib(server.resident_bytes())} |", flush=True)
        for connection in connections:
            connection.close()
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overhead", "network", "idle"])
    parser.add_argument("--rounds", type=int, default=5, help="repetitions of the network runs")
    arguments = parser.parse_args()
    {"overhead": overhead, "network": network, "idle": idle}[arguments.what](arguments)


if __name__ == "__main__":
    main()
