"""Gets of values on flash by clients and by reads under way, beside memcached's extstore and fio: the sweep of extstore's post.

    python -m network.sweep [--steps 1,2,4,8,16,32] [--values 512,...,8192] [--seconds S]

Each of the first three has one thread on a core of its own for the protocol, and a file in the folder that FLASH_FOLDER names, or
else beside the results. A client is a connection. The steps are

- io_uring: requests that each client of Ebbtide has in flight, each a read of the kernel's ring
- threads: Ebbtide's where the kernel has no io_uring (`-o ext_threads`), one request of each client in flight. Switching io_uring
  off takes root; without that these rows are left out, and that is told
- extstore: memcached's `ext_threads`, one request of each client in flight
- fio: reads of as many blocks of 4 KiB as a value takes, by io_uring, as many in flight as the step says times the clients

by gets of one key, of sixteen, and of one key by Zipf's law with 0.99, in which memory answers many. Only what came from flash
counts. As in `network.flash` a limit of memory keeps memcached out of the page cache, where one can be made: here what the server's
process has after the fill, or its memory where a start found flash warm, and sixteen MiB: data of three times the memory would
be half in a page cache of a memory's size.
"""
import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import client
import results
import servers
from network import flash
from network.setup import CLIENT_CORE, SERVER_CORE

STEPS = [1, 2, 4, 8, 16, 32]
VALUES = [512, 1024, 2048, 4096, 8192]
DATA_BYTES = 3 * flash.MEMORY_MIB << 20
MODES = {
    "single": ["--popularity", "uniform"],
    "multiget of 16": ["--popularity", "uniform", "--batch", 16],
    "mix": ["--popularity", "zipf"],
}
WARM_SECONDS = 1
# Connections' buffers, and what memcached reads through.
SPARE_MIB = 16
IO_URING_DISABLED = pathlib.Path("/proc/sys/kernel/io_uring_disabled")
BLOCK = 4096
FIO_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Engine:
    """What reads. `start` takes the path of the file and the step."""

    start: object
    # Whether the step is that of the clients: then one start serves all steps.
    step_is_clients: bool = False
    without_io_uring: bool = False
    # Whether the next start finds what the last one wrote.
    is_warm: bool = True


def extstore(path, threads):
    options = f"ext_path={path}:{flash.FLASH},ext_threads={threads},ext_item_size=256,slab_automove=1"
    return servers.memcached(flash.MEMORY_MIB, cores=[SERVER_CORE], flags=["-o", options])


def ebbtide(path, threads=None):
    user = ["-u", "root"] if os.geteuid() == 0 else []
    pool = ["-o", f"ext_threads={threads}"] if threads else []
    return servers.ebbtide(flash.MEMORY_MIB, cores=[SERVER_CORE], flags=["--flash", f"{path}:{flash.FLASH}", *pool, *user])


ENGINES = {
    "io_uring": Engine(lambda path, _: ebbtide(path), step_is_clients=True),
    "threads": Engine(ebbtide, without_io_uring=True),
    "extstore": Engine(extstore, is_warm=False),
}
FIO = "fio"


@contextlib.contextmanager
def io_uring_disabled():
    """Gives whether it could be done."""
    try:
        before = IO_URING_DISABLED.read_text()
        IO_URING_DISABLED.write_text("2")
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        IO_URING_DISABLED.write_text(before)


def keys_of(value):
    return DATA_BYTES // (value + client.KEY_BYTES)


def forget_pages(path):
    """Takes a file out of the page cache: a limit of memory counts only what is read after it was set."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def from_flash(server):
    return int(server.stats()["get_extstore"])


def measure_server(server, value, step, clients, mode, pipeline, seconds):
    arguments = [*flash.load(keys_of(value), value), *MODES[mode], "--get-ratio", 1, "--connections", clients,
                 "--pipeline", pipeline]
    client.bench(server, *arguments, "--seconds", WARM_SECONDS, "--seed", 2, cores=[CLIENT_CORE])
    before = from_flash(server)
    report = client.bench(server, *arguments, "--seconds", seconds, "--seed", 3, cores=[CLIENT_CORE])
    reads = (from_flash(server) - before) / report["seconds"]
    return {"step": step, "clients": clients, "value": value, "mode": mode, "reads": reads, "ops": report["ops_per_second"],
            **flash.percentiles(report), **flash.breakdown(report)}


def measure_engine(name, value, steps, seconds, folder, rows):
    engine = ENGINES[name]
    path, is_filled = folder / f"{name}.flash", False
    for step in [None] if engine.step_is_clients else steps:
        with servers.running(engine.start, path, step) as server:
            if not (engine.is_warm and is_filled):
                flash.fill(server, keys_of(value), value)
                is_filled = True
            forget_pages(path)
            limit = max(server.resident_bytes() >> 20, flash.MEMORY_MIB) + SPARE_MIB
            with flash.confined(server, folder, limit) as is_confined:
                for pipeline, clients, mode in itertools.product(steps if step is None else [1], steps, MODES):
                    row = measure_server(server, value, step or pipeline, clients, mode, pipeline, seconds)
                    rows.add(engine=name, confined=is_confined, **row)
        if not engine.is_warm:
            path.unlink(missing_ok=True)
    for left in folder.glob(f"{name}.flash*"):
        left.unlink()


def measure_fio(value, steps, seconds, folder, rows):
    block = -(-value // BLOCK) * BLOCK
    for step, clients in itertools.product(steps, steps):
        command = [*servers.pinned([SERVER_CORE]), servers.program("fio"), "--name=reads", f"--filename={folder / 'fio'}",
                   f"--size={FIO_BYTES}", "--rw=randread", f"--bs={block}", "--direct=1", "--ioengine=io_uring",
                   f"--iodepth={step * clients}", f"--runtime={max(1, round(seconds))}", "--time_based", "--output-format=json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        read = json.loads(done.stdout)["jobs"][0]["read"]
        percentiles = read["clat_ns"]["percentile"]
        at = {"p50_us": percentiles["50.000000"], "p99_us": percentiles["99.000000"], "p999_us": percentiles["99.900000"]}
        rows.add(engine=FIO, step=step, clients=clients, value=value, mode="single", reads=read["iops"], ops=read["iops"],
                 **{column: ns / 1000 for column, ns in at.items()})


def measure(steps, values, seconds):
    columns = ["engine", "step", "clients", "value", "mode", "reads", "ops", *flash.PERCENTILES,
               *map(flash.within, flash.BREAKDOWN), "confined"]
    rows = results.Rows("network", "sweep", columns)
    folder = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("FLASH_FOLDER", rows.path.parent)))
    # memcached gives up being root before it opens the file.
    folder.chmod(0o777)
    try:
        for value in values:
            measure_fio(value, steps, seconds, folder, rows)
            for name, engine in ENGINES.items():
                with io_uring_disabled() if engine.without_io_uring else contextlib.nullcontext(True) as is_as_wanted:
                    if is_as_wanted:
                        measure_engine(name, value, steps, seconds, folder, rows)
                    else:
                        print(f"{name}: io_uring cannot be switched off here; these rows are left out.\n", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return rows


def show(rows):
    engines, table = rows.distinct("engine"), []
    for value, mode in itertools.product(rows.distinct("value"), MODES):
        for engine in engines:
            cells = [row for row in rows.rows if (row["engine"], row["value"], row["mode"]) == (engine, value, mode)]
            if cells:
                best, alone = max(cells, key=rate), cells[0]
                table.append([value, mode, engine, *one_cell(alone), f"{best['step']}, {best['clients']}", *one_cell(best)])
    results.markdown(["value, bytes", "mode", "engine", "1, 1: reads/s (mix: gets/s)", "p50, p99, p99.9 us", "best: step, clients",
                      "reads/s (mix: gets/s)", "p50, p99, p99.9 us"], table)
    for mode in MODES:
        heat_map(rows, mode)


def rate(row):
    """Reads from flash a second; of the mix, which mostly hits memory, gets."""
    return row["ops" if row["mode"] == "mix" else "reads"]


def one_cell(row):
    return f"{rate(row):.0f}", ", ".join(f"{row[column]:.0f}" for column in flash.PERCENTILES)


def heat_map(rows, mode):
    """Reads a second, of the mix gets: a row of pictures per size of values, a picture per engine, all of a row in the same colours."""
    pyplot = results.plotting()
    found = [row for row in rows.rows if row["mode"] == mode]
    values, engines = rows.distinct("value"), [name for name in rows.distinct("engine") if any(row["engine"] == name for row in found)]
    figure, axes = pyplot.subplots(len(values), len(engines), figsize=(2.6 * len(engines), 2.3 * len(values)), squeeze=False)
    steps = rows.distinct("step")
    for place, value in enumerate(values):
        most = max(rate(row) for row in found if row["value"] == value)
        for column, engine in enumerate(engines):
            rates = {(row["step"], row["clients"]): rate(row) for row in found if (row["value"], row["engine"]) == (value, engine)}
            picture = [[rates.get((step, clients), float("nan")) / 1000 for clients in steps] for step in steps]
            axis = axes[place][column]
            axis.imshow(picture, origin="lower", cmap="viridis", vmin=0, vmax=most / 1000)
            for (y, x) in itertools.product(range(len(steps)), repeat=2):
                axis.text(x, y, f"{picture[y][x]:.0f}", ha="center", va="center", color="white", fontsize=6)
            axis.set_xticks(range(len(steps)), steps)
            axis.set_yticks(range(len(steps)), steps)
            axis.set_title(f"{engine}, {value} B", fontsize=8)
            axis.tick_params(labelsize=6)
    axes[-1][0].set_xlabel("clients", fontsize=7)
    axes[-1][0].set_ylabel("step", fontsize=7)
    results.save(pyplot, figure, rows.path.parent / f"sweep-{mode.split()[0]}.svg")


def numbers(text):
    return [int(number) for number in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=numbers, default=STEPS)
    parser.add_argument("--values", type=numbers, default=VALUES, help="sizes in bytes")
    parser.add_argument("--seconds", type=float, default=1, help="of each measurement")
    arguments = parser.parse_args()
    show(measure(arguments.steps, arguments.values, arguments.seconds))


if __name__ == "__main__":
    main()
