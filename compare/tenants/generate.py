#!/usr/bin/env python3
"""Writes the trace of ten applications with the pools of their static reservations.

    generate.py --seed N --out FOLDER [--swap 1,2]     FOLDER/trace.csv, FOLDER/pools.toml; prints memory and SHA-256

Each application writes all its objects first. Then requests arrive at a constant rate: an application by its share, a
key by Zipf's law; over-provisioned ones also ask for keys that are never asked for again. `--swap A,B` exchanges the
shares of two applications after half of the trace. The same seed gives the same bytes.
"""
import argparse
import bisect
import hashlib
import itertools
import math
import pathlib
import random
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
PARAMETERS = HERE / "applications.toml"
KEY_BYTES = 16
# Keys of an application are numbers from here on; keys that are asked for once follow its objects.
KEYS_OF_APPLICATION = 10_000_000


def entropy(weights):
    total = sum(weights)
    return -sum(w / total * math.log2(w / total) for w in weights if w > 0)


def class_weights(classes, bits):
    """Geometric weights of the size classes that have this entropy."""
    if bits <= 0:
        return [1.0] + [0.0] * (classes - 1)
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if entropy([middle**c for c in range(classes)]) < bits:
            low = middle
        else:
            high = middle
    return [high**c for c in range(classes)]


def lru_bytes(chances, sizes, hit_ratio):
    """Bytes of an LRU cache with this hit ratio, by Che's approximation."""
    low, high = 0.0, 1e12
    for _ in range(100):
        window = (low + high) / 2
        hits = sum(p * -math.expm1(-p * window) for p in chances)
        low, high = (window, high) if hits < hit_ratio else (low, window)
    return sum(size * -math.expm1(-p * high) for p, size in zip(chances, sizes))


class Application:
    def __init__(self, given, parameters, rng):
        self.name = f"app{given['number']}"
        self.base = given["number"] * KEYS_OF_APPLICATION
        self.share, keys = given["share"], given["keys"]
        self.is_over_provisioned = given["hit_ratio"] >= parameters["over_provisioned_from"]
        self.once = 1 - given["hit_ratio"] if self.is_over_provisioned else 0.0
        ranks = [rank**-given["alpha"] for rank in range(1, keys + 1)]
        total = sum(ranks)
        chances = [rank / total for rank in ranks]
        self.cumulative = list(itertools.accumulate(chances))
        weights = class_weights(parameters["classes"], given["entropy"])
        classes = rng.choices(range(parameters["classes"]), weights, k=keys)
        self.sizes = [int(given["smallest"] * 2 ** (c + rng.random())) for c in classes]
        # The key of a rank is drawn, so that neighbours in rank are not neighbours by number.
        self.keys = list(range(keys))
        rng.shuffle(self.keys)
        all_bytes = [KEY_BYTES + size for size in self.sizes]
        if self.is_over_provisioned:
            self.reserved = parameters["over_provision"] * sum(all_bytes)
        else:
            self.reserved = lru_bytes(chances, all_bytes, given["hit_ratio"])
        self.asked_once = 0

    def row(self, rank):
        return f"{self.base + self.keys[rank]},{KEY_BYTES},{self.sizes[rank]}"

    def request(self, rng):
        if self.once and rng.random() < self.once:
            self.asked_once += 1
            size = self.sizes[rng.randrange(len(self.sizes))]
            return f"{self.base + len(self.keys) + self.asked_once},{KEY_BYTES},{size}"
        return self.row(min(bisect.bisect_left(self.cumulative, rng.random()), len(self.keys) - 1))


def rows(applications, parameters, swap, rng):
    yield "timestamp_s,key_id,key_size,value_size,op,ttl_s,pool\n"
    for application in applications:
        for rank in range(len(application.keys)):
            yield f"0,{application.row(rank)},set,0,{application.name}\n"
    requests, seconds = parameters["requests"], parameters["seconds"]
    shares = [application.share for application in applications]
    for number in range(requests):
        if swap and number == requests // 2:
            one, other = (next(at for at, a in enumerate(applications) if a.name == f"app{n}") for n in swap)
            shares[one], shares[other] = shares[other], shares[one]
        if number % 1000 == 0:
            chosen = rng.choices(applications, shares, k=1000)
        application = chosen[number % 1000]
        yield f"{1 + number * seconds // requests},{application.request(rng)},get,0,{application.name}\n"


def generate(seed, out, swap=None):
    """Writes both files; the memory of all reservations, and the SHA-256 of the trace."""
    parameters = tomllib.loads(PARAMETERS.read_text())
    rng = random.Random(seed)
    applications = [Application(given, parameters, rng) for given in parameters["application"]]
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with open(out / "trace.csv", "w") as trace:
        for row in rows(applications, parameters, swap, rng):
            trace.write(row)
            digest.update(row.encode())
    with open(out / "pools.toml", "w") as pools:
        for application in applications:
            pools.write(f'[[pool]]\nname = "{application.name}"\nweight = {int(application.reserved / 1024)}\n')
    return int(sum(application.reserved for application in applications)), digest.hexdigest()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--swap", type=lambda text: tuple(int(n) for n in text.split(",")))
    given = parser.parse_args()
    memory, digest = generate(given.seed, given.out, given.swap)
    print(f"memory {memory} sha256 {digest}")


if __name__ == "__main__":
    main()
