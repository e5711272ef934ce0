"""Replays of a trace through the policies of libcachesim, with metadata charged to every object.

libcachesim counts every row as a get and knows no expiry. A trace of nothing but lasting objects goes through its own
loop; any other is fed row by row: a set refreshes the object in place (and counts as no get), a delete removes it, and
expiry is exact:

- lazy: an object that is asked for after its TTL is removed first, so the get misses and inserts it anew. What a
  policy's ghosts know of the key survives that.
- sampling: besides, every insertion draws some objects at random and removes the expired among them. The drawn may be
  evicted long since: libcachesim does not tell.

For the policies of `RENAMED`, removing costs more hits than it wins (their queues shrink with every removal): there the
key becomes another object instead, and the expired one stays until it is evicted.
"""
import pathlib
import random
import tempfile

import libcachesim
import numpy

from sampled import Sampled
from traces import DELETE, GET

ONLINE = {
    "fifo": libcachesim.FIFO, "lru": libcachesim.LRU, "clock": libcachesim.Clock, "slru": libcachesim.SLRU,
    "2q": libcachesim.TwoQ, "arc": libcachesim.ARC, "lirs": libcachesim.LIRS, "lfu": libcachesim.LFU,
    "gdsf": libcachesim.GDSF, "lhd": libcachesim.LHD, "hyperbolic": libcachesim.Hyperbolic,
    "wtinylfu": libcachesim.WTinyLFU, "s3fifo": libcachesim.S3FIFO, "sieve": libcachesim.Sieve,
}
POLICIES = ONLINE | {"belady": libcachesim.Belady}
ORACLE_ROW = numpy.dtype([("time", "<u4"), ("key", "<u8"), ("size", "<u4"), ("next", "<i8")])
# 2^20 buckets: the library's default of 2^24 costs more to clear than a small trace costs to replay.
HASH_POWER = 20


RENAMED = {"slru", "sieve"}
SAMPLES = 8
RENAMING_STEP = 1 << 40


def miss_ratio(trace, policy, memory, metadata, sampling=False):
    """Misses per get at `memory` bytes, of which every object takes its key, its value and `metadata`."""
    sizes = trace.sizes + metadata
    if sizes.min() == sizes.max():
        # Counted in objects: the library's ARC adapts by 1 at a time, whatever the unit is.
        sizes, memory = numpy.ones_like(sizes), memory // int(sizes[0])
    cache = POLICIES[policy](cache_size=memory, hashpower=HASH_POWER)
    if trace.only_gets:
        return replay_whole(trace, cache, sizes)
    return RowReplay(cache, policy in RENAMED, sampling).play(trace, sizes)


def next_appearances(keys):
    """For every row the row at which its key comes next; -1 is never."""
    order = numpy.argsort(keys, kind="stable")
    following = numpy.full(len(keys), -1, dtype=numpy.int64)
    same = keys[order[1:]] == keys[order[:-1]]
    following[order[:-1][same]] = order[1:][same] + 1
    return following


def replay_whole(trace, cache, sizes):
    rows = numpy.empty(len(trace.key), dtype=ORACLE_ROW)
    rows["time"], rows["key"], rows["size"] = trace.time, trace.key + 1, sizes
    rows["next"] = next_appearances(trace.key)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "trace.oracleGeneral"
        rows.tofile(path)
        reader = libcachesim.TraceReader(str(path), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
        return cache.process_trace(reader)[0]


class RowReplay:
    def __init__(self, cache, renaming, sampling):
        self.cache = cache
        self.renaming = renaming
        self.sampling = sampling
        self.expiries = {}
        self.names = {}
        self.mortal = Sampled()
        self.generator = random.Random(1)

    def play(self, trace, sizes):
        request = libcachesim.Request()
        gets = misses = 0
        columns = (trace.time, trace.key + 1, sizes, trace.op, trace.ttl, next_appearances(trace.key))
        for now, key, size, op, ttl, following in zip(*(column.tolist() for column in columns)):
            if op == DELETE or self.expiries.get(key, now + 1) <= now:
                self.remove(key)
                if op == DELETE:
                    continue
            request.obj_id, request.obj_size = self.names.get(key, key), size
            request.clock_time, request.next_access_vtime = now, following
            hit = self.cache.get(request)
            if op == GET:
                gets += 1
                misses += not hit
            if ttl and (op != GET or not hit):
                self.expiries[key] = now + ttl
                if self.sampling:
                    self.sample(key, now)
        return misses / gets

    def remove(self, key):
        self.expiries.pop(key, None)
        self.mortal.discard(key)
        if self.renaming:
            # Keys are dense and far below: no two names are ever the same.
            self.names[key] = self.names.get(key, key) + RENAMING_STEP
        else:
            self.cache.remove(key)

    def sample(self, key, now):
        self.mortal.add(key)
        for drawn in self.mortal.draw(self.generator, SAMPLES):
            if self.expiries.get(drawn, now + 1) <= now:
                self.remove(drawn)
