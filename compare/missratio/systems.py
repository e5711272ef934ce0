"""The systems to compare, and how each is asked. All of them take a list of sizes of memory.

| system | memory per object beside key and value |
|---|---|
| the policies of libcachesim | 24 bytes |
| LHD with random-sampling expiry | 38 bytes: in the Segcache paper it was built upon slab storage |
| peer-replay: memcached, Redis, slab eviction, Hyperbolic, LRU with proactive expiry, the crate segcache | as it says |
| ebbtide | all-in: the memory is the limit of everything |
"""
import json
import subprocess
from dataclasses import dataclass

import policies

CHARGE = 24
LHD_CHARGE = 38
LEAST_MEMORY = 256 << 10
DEFAULT_POLICY = "s3fifo"
# What peer-replay calls a system; system, policy and bytes charged per object.
FAST_PEERS = {
    "proactive": ("proactive", "lru", "24"),
    "slab": ("slab", "slab eviction", "38"),
    "memcached": ("memcached", "no crawler", "56"),
    "memcached-crawler": ("memcached", "crawler", "56"),
    "redis": ("redis", "allkeys-lru", "60"),
    "hyperbolic": ("sampling", "hyperbolic", "38"),
}
# What a peer may take for a replay: the crate segcache needs more than half an hour for one that others do in seconds.
PATIENCE_SECONDS = 600
SLOW_PEERS = {"segcache": ("segcache", "merge", "all-in")}
INSERTION = tuple(f"lru:insertion={point}" for point in ("1/2", "1/4", "1/8"))
EBBTIDE_POLICIES = ("merge", "fifo", "random", "cte", "utilization", "s3fifo", "lru", *INSERTION, "2q", "merge-sketch")


@dataclass(frozen=True)
class Policy:
    """A policy of libcachesim, with what is charged per object."""

    system: str
    policy: str
    metadata: int
    sampling: bool = False

    def miss_ratio(self, trace, memory):
        return policies.miss_ratio(trace, self.policy, memory, self.metadata, self.sampling)


LHD = Policy("sampling", "lhd", LHD_CHARGE, sampling=True)


def policy_systems(trace):
    """Belady does not know of expiry: what it would do with a TTL is not defined."""
    names = policies.POLICIES if trace.only_gets else policies.ONLINE
    return [Policy("libcachesim", name, CHARGE) for name in names] + [LHD]


def lines(command, seconds=None):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout.splitlines()


def peer(binary, path, memories, name):
    """Yields memory and miss ratio of a system of peer-replay, but for what it refuses, or does not do in time."""
    for memory in memories:
        try:
            [line] = lines([binary, path, "--memory", str(memory), "--system", name], PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            print(f"{path}: {name} takes more than {PATIENCE_SECONDS} s with {memory} bytes and is left out", flush=True)
            continue
        ratio = line.split(",")[-1]
        if ratio != "-":
            yield memory, float(ratio)


def ebbtide(binary, path, memories, eviction=EBBTIDE_POLICIES, more=()):
    """{(memory, policy): miss ratio} of one run of `ebbtide replay`; memory below its least is left out."""
    memories = [memory for memory in memories if memory >= LEAST_MEMORY]
    if not memories:
        return {}
    sizes = ",".join(map(str, memories))
    reports = lines([binary, "replay", path, "--memory", sizes, "--policy", ",".join(eviction), "--json", *more])
    ratios = [json.loads(report)["miss_ratio"] for report in reports]
    return dict(zip(((memory, policy) for memory in memories for policy in eviction), ratios, strict=True))
