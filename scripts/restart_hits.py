#!/usr/bin/env python3
"""Hit ratio in the minute after a restart, as Fig. 15 of the CacheLib paper (OSDI 2020): table and plot.

    scripts/restart_hits.py [--svg docs/images/restart-hits.svg] [--minute 3000000]

Each case plays the same requests: a warm-up, the minute before a clean stop, and the minute after the start. A minute
is a number of requests, 50,000 a second by default, and not a time: they are played as fast as the server answers, so
the hit ratios do not depend on the load of the machine. What is lost besides is what a real client would have asked for
while the server was down. All cases have the same memory and flash:

    cold          both are removed between stop and start
    flash only    memory is lost: --flash-drain-seconds 0
    drained       memory is drained to flash at the stop, as by default
    memory file   -e on a tmpfs
    no restart    for comparison

A miss is followed by a set, as of a look-aside client. Gets that wait in the pipeline for such a set miss, too. The
traces are generated; their TTLs are longer than the run.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "compare"))
from servers import EBBTIDE, Server

# Name, arguments of `ebbtide generate`, megabytes of memory and of flash at full length: in each, memory holds a part
# of the objects and flash most of them.
TRACES = [
    ("tweets", ["--preset", "c"], 48, 256),
    ("zipf", ["--preset", "zipf", "--alpha", "0.9", "--keys", "600k", "--churn", "0.1", "--ttl", "864000"], 64, 512),
]
CASES = ["cold", "flash only", "drained", "memory file", "no restart"]
COLOURS = {"cold": "#c0392b", "flash only": "#e08e0b", "drained": "#2471a3", "memory file": "#1e8449", "no restart": "#888"}
BUCKETS = 12
SECONDS = 60
WARM_UP_MINUTES = 3


def parts_of(folder, arguments, minute, binary):
    """Files of consecutive requests: the warm-up, and the buckets of the minutes before and after the restart."""
    trace = folder / "trace.csv"
    bucket = minute // BUCKETS
    needed = WARM_UP_MINUTES * minute + 2 * BUCKETS * bucket
    # The number of requests of a generated trace is approximate.
    requests = needed + needed // 4
    command = [binary, "generate", *arguments, "--requests", requests, "--seed", 1, "--output", trace]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    sizes = [WARM_UP_MINUTES * minute] + [bucket] * (2 * BUCKETS)
    parts = []
    with open(trace, "rb") as lines:
        first = next(lines)
        # A trace may begin with the names of its columns.
        header = first if not first[:1].isdigit() else b""
        pending = b"" if header else first
        for number, size in enumerate(sizes):
            path = folder / f"part-{number}.csv"
            with open(path, "wb") as part:
                part.write(header)
                for _ in range(size):
                    line = pending or next(lines, b"")
                    pending = b""
                    if not line:
                        raise SystemExit(f"{arguments}: the trace has fewer than {needed} requests")
                    part.write(line)
            parts.append((path, size))
    trace.unlink()
    return parts


def play(server, part, binary):
    """The hit ratio of the gets of a part."""
    path, requests = part
    command = [binary, "bench", "--target", f"127.0.0.1:{server.port}", "--trace", path, "--requests", requests,
               "--fill", "--pipeline", 32, "--json"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{command}: {done.stderr}")
    report = json.loads(done.stdout)
    return report["hits"] / max(report["gets"], 1)


def stop(server):
    server.process.send_signal(signal.SIGTERM)
    server.process.wait()


def run(case, parts, megabytes, flash_megabytes, args):
    """Hit ratios by bucket, before and after the restart."""
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, tempfile.TemporaryDirectory(dir=args.disk) as disk:
        os.chmod(folder, 0o777)
        os.chmod(disk, 0o777)
        flags = ["-m", megabytes, "--admin", "off", "--flash", f"{disk}/flash:{flash_megabytes}m"]
        flags += ["-e", f"{folder}/memory"] if case == "memory file" else []
        flags += ["--flash-drain-seconds", 0] if case == "flash only" else []
        server = Server(args.binary, flags)
        play(server, parts[0], args.binary)
        before = [play(server, part, args.binary) for part in parts[1:1 + BUCKETS]]
        if case != "no restart":
            stop(server)
            if case == "cold":
                for file in pathlib.Path(disk).iterdir():
                    file.unlink()
            server = Server(args.binary, flags)
        after = [play(server, part, args.binary) for part in parts[1 + BUCKETS:]]
        stop(server)
    return before, after


def mean(values):
    return sum(values) / len(values)


def row(name, case, before, after):
    return (f"| {name} | {case} | {mean(before):.4f} | {after[0]:.4f} | {mean(after):.4f} | "
            f"{after[0] / mean(before):.3f} | {mean(after) / mean(before):.3f} |")


def plot(results, minute):
    """An SVG with a panel for each trace: hit ratio over the seconds around the restart."""
    width, height, left, top, gap = 420, 240, 46, 36, 60
    names = list(results)
    total = len(names) * (width + gap) + left
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total} {height + top + 74}" font-family="sans-serif" '
        'font-size="12">',
        f'<rect width="{total}" height="{height + top + 74}" fill="#fff"/>',
    ]
    for number, name in enumerate(names):
        x0, y0 = left + number * (width + gap), top
        values = [value for before, after in results[name].values() for value in before + after]
        low = max(0.0, min(values) - 0.05) // 0.05 * 0.05

        def x(bucket):
            return x0 + (bucket + 0.5) / (2 * BUCKETS) * width

        def y(value):
            return y0 + (1 - (value - low) / (1 - low)) * height

        lines.append(f'<text x="{x0 + width / 2}" y="{y0 - 12}" text-anchor="middle" font-size="14">{name}</text>')
        for step in range(6):
            value = low + (1 - low) * step / 5
            lines.append(f'<line x1="{x0}" x2="{x0 + width}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
            lines.append(f'<text x="{x0 - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>')
        for step in range(5):
            at, second = x0 + width * step / 4, -SECONDS + 2 * SECONDS * step // 4
            lines.append(f'<text x="{at}" y="{y0 + height + 16}" text-anchor="middle">{second}</text>')
        middle = x0 + width / 2
        lines.append(f'<line x1="{middle}" x2="{middle}" y1="{y0}" y2="{y0 + height}" stroke="#555" stroke-dasharray="4 3"/>')
        lines.append(f'<text x="{middle}" y="{y0 + height + 32}" text-anchor="middle">'
                     f'seconds at {minute // SECONDS:,} requests a second; the restart is at 0</text>')
        for case, (before, after) in results[name].items():
            points = " ".join(f"{x(bucket):.1f},{y(value):.1f}" for bucket, value in enumerate(before + after))
            lines.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[case]}" stroke-width="2"/>')
    for number, case in enumerate(CASES):
        x0, y0 = left + number * 150, top + height + 56
        lines.append(f'<line x1="{x0}" x2="{x0 + 24}" y1="{y0 - 4}" y2="{y0 - 4}" stroke="{COLOURS[case]}" stroke-width="3"/>')
        lines.append(f'<text x="{x0 + 30}" y="{y0}">{case}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minute", type=int, default=3_000_000, help="requests of a minute")
    parser.add_argument("--scale", type=float, default=1.0, help="memory and flash, as a share of those at full length")
    parser.add_argument("--folder", default="/dev/shm")
    parser.add_argument("--disk", default=tempfile.gettempdir())
    parser.add_argument("--binary", default=EBBTIDE)
    parser.add_argument("--svg", type=pathlib.Path)
    args = parser.parse_args()
    print("| trace | case | hit ratio, minute before | first 5 s after | minute after | first 5 s / before | minute / before |")
    print("|---|---|---|---|---|---|---|")
    results = {}
    for name, arguments, megabytes, flash_megabytes in TRACES:
        folder = pathlib.Path(tempfile.mkdtemp(dir=args.disk))
        try:
            parts = parts_of(folder, arguments, args.minute, args.binary)
            sizes = [max(8, int(megabytes * args.scale)), max(32, int(flash_megabytes * args.scale))]
            results[name] = {}
            for case in CASES:
                results[name][case] = run(case, parts, *sizes, args)
                print(row(name, case, *results[name][case]), flush=True)
        finally:
            shutil.rmtree(folder)
    if args.svg:
        args.svg.write_text(plot(results, args.minute))


if __name__ == "__main__":
    main()
