"""The same random commands to memcached and to Ebbtide: the same answers, byte for byte.

The memcached is Debian's 1.6.18, the reference 1.6.45: where they differ, 1.6.18 is asked what has the answer of the later one
(`versions.py`, which knows each difference by its name). A command on which Ebbtide closes is sent to Ebbtide alone.

Left out of the comparison are the cas tokens and the text after VERSION. Ebbtide's tokens may name a change that was
not one of the key (a false conflict, which clients answer by reading again): the test does as a client would, counts
these, and takes more than 1 % of the cas commands for a failure. EBBTIDE_SEED repeats a run, EBBTIDE_COMMANDS sets its
length.
"""

import collections
import dataclasses
import math
import os
import random
import re
import time

from harness import EBBTIDE, MEMCACHED, PATIENCE_SECONDS, Server
from stream import SLACK_SECONDS, Stream, cas_command
from versions import Closes, translate

COMMANDS = int(os.environ.get("EBBTIDE_COMMANDS", "120000"))
SEED = int(os.environ.get("EBBTIDE_SEED", random.SystemRandom().getrandbits(32)))
# Batches with keys of short lives that are compared.
MORTALS = COMMANDS // 200
# The number of differences that are shown before the test gives up.
SHOWN = 5
# That long an answer takes at most, of the fastest of many.
ANSWER_SECONDS = 0.01
UNMARKED = b"<the mark behind it was not answered>"


# memcached without the threads that hold items for a moment, in which decr does not pad.
FLAGS = ["-m", "64", "-o", "no_lru_maintainer,no_lru_crawler,no_slab_reassign"]


class Side:
    """One server, its connection, and the tokens it has given."""

    def __init__(self, server):
        self.server = server
        self.connection = server.connect()
        self.tokens = {}

    def token(self, key):
        return self.tokens[key.encode()]

    def ask(self, data, mark):
        """The answers to `data`, without those to the mark that is sent behind it."""
        # Not always the same key: one that shares a bucket with a cas command's would conflict with it each time.
        key = f"~mark{mark % 16}"
        end = f"STORED\r\nVALUE {key} {mark} 0\r\n\r\nEND\r\n".encode()
        self.connection.send(data + f"set {key} {mark} 0 0\r\n\r\nget {key}\r\n".encode())
        try:
            answer = self.connection.read_until(end)
        except TimeoutError:
            answer = self.connection.read_all() + b"<no more in time>"
        if answer.endswith(end):
            return answer[: -len(end)]
        # What follows would be compared askew.
        self.connection.close()
        self.connection = self.server.connect()
        return answer + b"\r\n" + UNMARKED


def answers(data):
    """The answers in `data` one by one, tokens blanked, and the tokens by key."""
    found, tokens, at = [], {}, 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        end = len(data) if end < 0 else end + 2
        line = data[at:end]
        if line.startswith(b"VALUE "):
            words = line[:-2].split(b" ")
            value = data[end : end + int(words[3]) + 2]
            end += len(value)
            if len(words) == 5:
                tokens[words[1]] = words[4].decode()
                line = b" ".join(words[:4]) + b" <cas>\r\n"
            line += value
        elif line.startswith(b"VERSION 1.6."):
            line = b"VERSION 1.6\r\n"
        found.append(line)
        at = end
    return found, tokens


def short(data, limit=80):
    return repr(data) if len(data) <= limit else f"{data[:limit]!r}... ({len(data)} bytes)"


def first_difference(ours, theirs):
    for at, (left, right) in enumerate(zip(ours + [b"<nothing>"], theirs + [b"<nothing>"])):
        if left != right:
            return f"answer {at}: memcached {short(right)}, ebbtide {short(left)}"
    return "one has more answers"


class CoarseClock:
    """memcached's time goes on once a second, and late when the machine stalls: what it stores then lives shorter by as much.

    Its ticks are a second and a bit apart, but they show whole seconds of the machine's clock: one that crosses such a second shows
    two more at once. So what it stores may live shorter by what it is behind that clock, not only by what it is behind its own ticks.
    """

    def __init__(self, memcached):
        self.connection = memcached.connect()
        self.least = math.inf
        # Three ticks: one alone may be late.
        first = self.look()[1]
        while self.look()[1] < first + 3:
            time.sleep(0.002)

    def look(self):
        """The moment after it was asked, and its seconds, of an origin of their own."""
        answer = self.connection.ask(b"stats\r\n", b"END\r\n")
        after = time.monotonic()
        seconds = int(re.search(rb"STAT time (\d+)", answer)[1])
        self.least = min(self.least, after - seconds)
        return after, seconds

    def settle(self):
        """Waits until it is not late. Says how far it is behind the machine's clock at most."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            after, seconds = self.look()
            behind = after - seconds - self.least
            if behind < 1 + SLACK_SECONDS:
                # The two clocks are whole seconds apart; an answer takes a moment.
                return behind + self.least - math.floor(self.least - ANSWER_SECONDS)
            time.sleep(0.01)
        raise AssertionError(f"memcached's clock is {behind:.1f} s behind, and stays so")


class Comparison:
    def __init__(self, ebbtide, memcached, seed):
        self.ebbtide, self.memcached = Side(ebbtide), Side(memcached)
        self.clock = CoarseClock(memcached)
        self.stream = Stream(seed, single="EBBTIDE_SINGLE" in os.environ)
        self.commands = self.cas = self.conflicts = self.mark = self.late = self.mortals = 0
        self.differences = []
        # How often each difference of the versions was met.
        self.named = collections.Counter()

    def translated(self, commands):
        """The commands on which Ebbtide goes on, and what 1.6.18 is asked instead of them."""
        kept, asked = [], []
        for command in commands:
            translation = translate(command)
            if isinstance(translation, Closes):
                self.named[translation.name] += 1
                self.mark += 1
                said = self.ebbtide.ask(command, self.mark)
                if said != translation.answer + b"\r\n" + UNMARKED:
                    self.differences.append(f"{short(said)} instead of a close, after {short(command)}")
                continue
            self.named.update(translation[1])
            kept.append(command)
            asked.append(translation[0])
        return kept, asked

    def step(self):
        # What this says holds from here on, whatever stalls before the servers have the batch.
        before, behind = time.monotonic(), self.clock.settle()
        batch = self.stream.batch()
        batch.commands, asked = self.translated(batch.commands)
        self.mark += 1
        self.commands += len(batch.commands) + (batch.cas is not None)
        data = batch.data(self.ebbtide.token)
        ours, our_tokens = answers(self.ebbtide.ask(data, self.mark))
        theirs, their_tokens = answers(self.memcached.ask(dataclasses.replace(batch, commands=asked).data(self.memcached.token), self.mark))
        after = time.monotonic()
        assert UNMARKED not in theirs[-1:], f"memcached swallows the mark after {short(data, 500)}"
        if not self.stream.in_time(batch, before, after):
            self.late += 1
            self.forget(batch)
        else:
            self.mortals += batch.names_mortals
            if batch.cas:
                self.cas += 1
                if (ours[-1:], theirs[-1:]) == ([b"EXISTS\r\n"], [b"STORED\r\n"]) and ours[:-1] == theirs[:-1]:
                    self.conflicts += 1
                    ours[-1] = self.cas_again(*batch.cas)
            if ours != theirs:
                commands = "\n    ".join(short(command) for command in batch.commands)
                self.differences.append(f"{first_difference(ours, theirs)}, after\n    {commands}")
                self.forget(batch)
        self.stream.done(batch, before, after, behind)
        for key in our_tokens.keys() & their_tokens.keys():
            self.ebbtide.tokens[key] = our_tokens[key]
            self.memcached.tokens[key] = their_tokens[key]
            self.stream.learn(key.decode())

    def cas_again(self, key, head, value):
        """What a client does about a conflict: reads the token again and tries again."""
        for _ in range(10):
            self.mark += 1
            _, tokens = answers(self.ebbtide.ask(f"gets {key}\r\n".encode(), self.mark))
            if key.encode() not in tokens:
                return b"<lost>"
            answer = self.ebbtide.ask(cas_command(key, head, value, tokens[key.encode()]), self.mark)
            if answer != b"EXISTS\r\n":
                return answer
        return b"<ten conflicts>"

    def forget(self, batch):
        """Makes the two equal again: what the batch may have touched is deleted on both."""
        named = {word for command in batch.commands for word in command.split()[:200] if len(word) <= 250}
        named.update(key.encode() for key in [*batch.lives, *batch.alive, *(batch.cas or ())[:1]])
        data = b"".join(b"delete " + key + b" noreply\r\n" for key in named)
        for side in (self.ebbtide, self.memcached):
            self.mark += 1
            side.ask(data, self.mark)


def test_the_same_commands_get_the_same_answers():
    print(f"EBBTIDE_SEED={SEED}")
    with Server(EBBTIDE, *FLAGS) as ebbtide, Server(MEMCACHED, *FLAGS) as memcached:
        run = Comparison(ebbtide, memcached, SEED)
        deadline = time.monotonic() + 4 * PATIENCE_SECONDS
        while len(run.differences) < SHOWN:
            # Machines that stall let fewer batches with short lives be compared, hence more batches are sent there.
            if run.commands >= COMMANDS and (run.mortals >= MORTALS or time.monotonic() > deadline):
                break
            run.step()
        # Objects that memcached had to evict would be differences of the test's own making.
        assert memcached.stat("evictions") == "0"
    print(f"{run.commands} commands, {run.cas} cas, {run.conflicts} false conflicts, {run.mortals} batches with short lives, {run.late} out of time")
    print(", ".join(f"{count} times {name}" for name, count in run.named.items()))
    assert run.differences == [], "\n".join(run.differences)
    assert len(run.named) >= 6, "the stream meets differences of the versions"
    assert run.cas > COMMANDS / 100
    # More than 1 %, by four standard deviations: two thirds of that are usual, and the hash's seed is another each time.
    limit = run.cas / 100
    assert run.conflicts <= limit + 4 * math.sqrt(limit)
    assert run.mortals >= MORTALS
