"""The five workloads of the Segcache paper, generated, in the compact form that `storage replay` reads."""
import json
import pathlib
import subprocess
import sys
from dataclasses import dataclass

from servers import EBBTIDE, ROOT

# The traces of missratio are those of this comparison, too. Its modules name each other without a package.
sys.path.append(str(ROOT / "compare/missratio"))
from preset_table import PRESETS  # noqa: E402

STORAGE = ROOT / "compare/target/release/storage"
FOLDER = ROOT / "compare/target/missratio/presets"
# Names of `storage replay --engine`, in the order of the tables, and what the tables call them.
ENGINES = {
    "ebbtide": "ebbtide",
    "ebbtide-merge": "ebbtide merge",
    "slab": "slab eviction",
    "memcached": "memcached",
    "memcached-crawler": "memcached with crawler",
    "hyperbolic": "r-Hyperbolic",
    "lhd": "r-LHD",
    "segcache": "crate segcache",
}


@dataclass(frozen=True)
class Workload:
    name: str
    requests: pathlib.Path
    footprint: int


def prepare(name):
    """Generates and converts a workload, as far as it is not there."""
    count = PRESETS[name].requests
    trace = FOLDER / f"{name}-{count}.csv.zst"
    converted = FOLDER / f"{name}-{count}.requests"
    footprint = pathlib.Path(f"{converted}.footprint")
    if not footprint.exists():
        FOLDER.mkdir(parents=True, exist_ok=True)
        if not trace.exists():
            part = trace.with_name(f"part-{trace.name}")
            run(EBBTIDE, "generate", "--preset", name, "--requests", count, "--seed", "1", "--output", part)
            part.rename(trace)
        # Last, as it stands for a whole trace.
        footprint.write_text(run(STORAGE, "convert", trace, converted))
    return Workload(name, converted, int(footprint.read_text()))


def replay(workload, engine, memories, *more):
    """The reports of a replay for each memory."""
    sizes = ",".join(map(str, memories))
    text = run(STORAGE, "replay", workload.requests, "--engine", engine, "--memory", sizes, "--json", *more)
    return [json.loads(line) for line in text.splitlines()]


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout
