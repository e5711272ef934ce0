"""The figures that need many cores and much memory, in one run of a fixed length, on a machine without a network.

    python3 -m large --bin-folder DIR [--seconds 470] [--threads 1,2,4,8,16,24,32] [--only objects,...] [--output DIR]

DIR holds `ebbtide`, `ebbtide-throughput`, `memcached` and in `lib` the libraries of memcached that the machine may
lack: `make -C compare large-binaries` puts them there. If it holds `ebbtide-throughput-before`, too, the program of an
earlier build, `half_sets` measures both in turns. Every part has a share of the seconds; it measures its cells in
the order of their weight, prints each at once, and leaves out those for which its time is over. The sizes follow from
the cores and the seconds, so that the same script shows on two cores in a minute that it works. CSV files are in
OUTPUT/large.
"""
import argparse
import os
import pathlib
import shutil
import sys
import tempfile
import time

# Share of the time, in the order of the run.
SHARES = {"in_process": 0.44, "half_sets": 0.08, "network": 0.16, "multigets": 0.06, "objects": 0.26}


def default_threads(cores):
    """1, 2, 4, ... and all cores, then half as many more and twice as many."""
    counts = [1]
    while counts[-1] * 2 < cores:
        counts.append(counts[-1] * 2)
    return sorted({*counts, cores, cores * 3 // 2, cores * 2})


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin-folder", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=470, help="of the whole run")
    parser.add_argument("--threads", type=lambda text: [int(part) for part in text.split(",")],
                        help="of the caches; more than cores: oversubscribed")
    parser.add_argument("--only", "--parts", dest="parts", type=lambda text: text.split(","), default=list(SHARES),
                        help="of " + ", ".join(SHARES))
    parser.add_argument("--objects", type=int, default=100_000_000, help="of the fill, fewer if cores or time are few")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("results"))
    options = parser.parse_args()
    for part in options.parts:
        if part not in SHARES:
            parser.error(f"{part}: the parts are {', '.join(SHARES)}")
    return options


def use_binaries(folder, scratch):
    """Copies the programs to where they may be executed, and sets the environment that the other modules read."""
    programs = pathlib.Path(scratch) / "bin"
    shutil.copytree(folder, programs)
    for name in ["ebbtide", "ebbtide-throughput", "memcached"]:
        if not (programs / name).exists():
            raise SystemExit(f"{folder / name} is missing: `make -C compare large-binaries` makes it")
        (programs / name).chmod(0o755)
    before = programs / "ebbtide-throughput-before"
    if before.exists():
        before.chmod(0o755)
        os.environ["THROUGHPUT_BEFORE_BINARY"] = str(before)
    # Servers that are started by root run as another user.
    pathlib.Path(scratch).chmod(0o755)
    os.environ["EBBTIDE_BINARY"] = str(programs / "ebbtide")
    os.environ["THROUGHPUT_BINARY"] = str(programs / "ebbtide-throughput")
    os.environ["PATH"] = f"{programs}:{os.environ['PATH']}"
    libraries = [str(programs / "lib"), os.environ.get("LD_LIBRARY_PATH")]
    os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, libraries))


def run(options):
    # Both read the environment when they are imported.
    import results
    from large import half_sets, in_process, multigets, network, objects
    from network.setup import CORES

    modules = {module.__name__.rpartition(".")[2]: module
               for module in (in_process, half_sets, network, multigets, objects)}
    results.OUTPUT = options.output
    options.threads = options.threads or default_threads(len(CORES))
    print(f"{len(CORES)} cores, threads {options.threads}, {options.seconds:.0f} s", flush=True)
    whole, now = sum(SHARES[part] for part in options.parts), time.monotonic()
    end = now
    for part in (part for part in SHARES if part in options.parts):
        # What a part leaves goes to those after it; what it takes more than its share is missing there.
        end += options.seconds * SHARES[part] / whole
        seconds = max(end - time.monotonic(), 5)
        print(f"\n## {part} ({seconds:.0f} s)\n", flush=True)
        try:
            modules[part].measure(options, time.monotonic() + seconds)
        except (Exception, SystemExit) as error:
            # One part that fails must not cost the others, on a machine that is lent for minutes.
            print(f"{part} ended early: {type(error).__name__}: {error}", flush=True)
    print(f"\ntook {time.monotonic() - now:.0f} s", flush=True)


def main():
    options = arguments()
    with tempfile.TemporaryDirectory(prefix="large-") as scratch:
        use_binaries(options.bin_folder, scratch)
        run(options)


if __name__ == "__main__":
    sys.exit(main())
