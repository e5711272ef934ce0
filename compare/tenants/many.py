#!/usr/bin/env python3
"""Which of many tenants are worth a profile, by the entropy of their misses (Dynacache, HotCloud'15, 3.3).

    many.py --ebbtide BINARY [--tenants 490] [--requests 40000] [--seed 1]

The paper profiles those of 490 applications whose misses spread over slab classes; its trace is not public. Here each
tenant is drawn from one of the ten applications of `applications.toml`: hit ratio and entropy as there, keys,
popularity and sizes by chance, requests over tenants by Zipf's law. Each is a memcached with the memory of its
reservation and slab classes of 96 x 2^i bytes; a profile of it finds the division of `ebbtide advise --slab-factor 2`.

Printed is, for thresholds of the entropy that misses have with pages by first come: tenants that are profiled, their
requests, and the part of the avoidable misses of all tenants that is avoided; beside it the same number of tenants by
most misses, and by chance.
"""
import argparse
import pathlib
import random
import sys
import tempfile
import tomllib

import generate
import slabs

THRESHOLDS = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5)


def drawn(parameters, rng):
    """The parameters of a tenant: one of the applications, with other keys, popularity and sizes."""
    prototype = rng.choice(parameters["application"])
    bits = min(max(prototype["entropy"] + rng.uniform(-0.3, 0.3), 0.0), 2.9)
    keys = int(10 ** rng.uniform(3.0, 4.2))
    smallest = int(2 ** rng.uniform(6, 10))
    return {**prototype, "entropy": bits, "keys": keys, "alpha": rng.uniform(0.7, 1.1), "smallest": smallest}


def write_trace(application, requests, path, rng):
    """A trace of the tenant alone: all objects, then requests, one a millisecond."""
    with open(path, "w") as trace:
        trace.write("timestamp_s,key_id,key_size,value_size,op,ttl_s\n")
        for rank in range(len(application.keys)):
            trace.write(f"0,{application.row(rank)},set,0\n")
        for number in range(requests):
            trace.write(f"{1 + number // 1000},{application.request(rng)},get,0\n")


class Tenant:
    def __init__(self, weight, result):
        self.weight = weight
        self.entropy = slabs.entropy(result["classes"])
        self.misses = weight * (1 - result["first_come_hit_ratio"])
        self.avoidable = max(weight * (result["optimal_hit_ratio"] - result["first_come_hit_ratio"]), 0.0)


def row(name, chosen, tenants, rng):
    avoidable = sum(tenant.avoidable for tenant in tenants)
    part = lambda some: sum(tenant.avoidable for tenant in some) / avoidable
    by_misses = sorted(tenants, key=lambda tenant: -tenant.misses)[: len(chosen)]
    by_chance = [part(rng.sample(tenants, len(chosen))) for _ in range(200)]
    requests = sum(tenant.weight for tenant in chosen) / sum(tenant.weight for tenant in tenants)
    print(
        f"| {name} | {len(chosen)} | {requests:.0%} | {part(chosen):.1%} | {part(by_misses):.1%} "
        f"| {sum(by_chance) / len(by_chance):.1%} |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ebbtide", type=pathlib.Path, required=True)
    parser.add_argument("--tenants", type=int, default=490)
    parser.add_argument("--requests", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    parameters, rng = tomllib.loads(generate.PARAMETERS.read_text()), random.Random(given.seed)
    tenants = []
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.csv"
        for rank in range(1, given.tenants + 1):
            application = generate.Application(drawn(parameters, rng), parameters, rng)
            write_trace(application, given.requests, path, rng)
            tenants.append(Tenant(1 / rank, slabs.slabs(given.ebbtide, path, application.reserved)))
            if rank % 49 == 0:
                print(f"{rank} of {given.tenants} tenants", file=sys.stderr)
    misses, avoidable = (sum(getattr(tenant, name) for tenant in tenants) for name in ("misses", "avoidable"))
    print(f"Profiles of all {len(tenants)} tenants avoid {avoidable / misses:.1%} of all misses.\n")
    print("| entropy at least | tenants profiled | their requests | avoided, of what all profiles avoid | by most misses | by chance |")
    print("|---|---|---|---|---|---|")
    for threshold in THRESHOLDS:
        row(f"{threshold}", [tenant for tenant in tenants if tenant.entropy >= threshold], tenants, rng)


if __name__ == "__main__":
    main()
