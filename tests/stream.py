"""A random stream of memcached commands, good and bad, in batches whose effect does not depend on chance.

What a batch must not depend on, and how it is kept from it:
- cas tokens differ between servers: each server's own token for a key is put in when a batch is sent, and a valid cas
  stands last in its batch, so that a false conflict can be repaired before anything else happens;
- the second in which a key expires: keys with a life time are a pool of their own, and none of them is named from
  SLACK_SECONDS and a second before its end until as long after it. A server, or the test itself, may stall: a batch that
  took longer than SLACK_SECONDS is not compared if it names such keys, and they are left alone for as long after it;
- how far memcached has written: decr pads with blanks, unless an answer with the old value is still under way; so no key
  is counted after it was read in the same batch;
- what was answered before: to a get with an overlong key memcached throws away the answers that still wait in the same
  pipeline; so these stand first in a batch;
- what lies behind a value: counting from 2^63 on, memcached looks for a minus sign in memory that is not the value's; so
  no counter comes there;
- the size of the buffers: no line is longer than 2 KB, but for multigets.
"""

import dataclasses
import random
import time

NORMAL = [f"key{i}" for i in range(300)]
NUMERIC = [f"n{i}" for i in range(40)]
MEDIUM = [f"medium{i}" for i in range(20)]
LARGE = [f"large{i}" for i in range(5)]
MORTAL = [f"mortal{i}" for i in range(300)]
LONG = ["k" * 250, "k" * 249 + "2", "é" * 125]

NUMBERS = [b"0", b"1", b"9", b"10", b"99", b"007", b"+5", b" 12", b"12 ", b"-3", b"", b"abc", b"1.5", b"12a", b"0x10"]
NUMBERS += [b"18446744073709551616", b"1" * 18, b"1" * 21, b"0" * 30]
DELTAS = ["0", "1", "2", "10", "100", "1000000000000000"]

# Past, in some spelling; and never or far away.
GONE = ["-1", "-100", "2592001", "1000000000"]
STAYS = ["0", "0", "0", "1000", "2592000"]

TOO_LARGE = [1_048_577, 1_100_000, 2_500_000]

# Expiry is late by at most one second on either server, and on a busy machine by this much more before a stall is noticed;
# `Stream.done` is told how early it may be.
SLACK_SECONDS = 1.5
LIVES_SECONDS = [3, 4, 5, 6, 8]

KEY = ["key1", "key2", "n1", "k" * 250, "k" * 251, "k" * 600, "a\tb", "a\x01b", "a\x7fb", "", "absent"]
NUMBER = ["0", "1", "5", "-1", "+1", "01", "abc", "1a", "", "4294967295", "4294967296", "18446744073709551616", "1.0"]
# No short life among them: it would end at some moment.
EXPTIME = ["0", "-1", "abc", "1a", "", "1000", "9223372036854775808", "1.0"]
TAIL = ["", "", "", " noreply", " noreply ", " norepl", " noreply extra", " extra", " 0", " "]
WORDS = [
    "frob",
    "GET",
    "Set",
    "getx",
    "ge",
    "setter",
    "incrs",
    "x" * 100,
    "\x01",
    "é",
    "0",
    "-",
    "end",
    "END",
    "STORED",
]


def random_value(random, length):
    """Random bytes, but no number: behind nothing but spaces memcached reads one on in what lay there before."""
    value = random.randbytes(length)
    return value.replace(value[:1], b"x") if value.isspace() else value


@dataclasses.dataclass
class Batch:
    """Commands that are sent together."""

    commands: list = dataclasses.field(default_factory=list)
    # The key, head and value of a cas with a valid token, sent last.
    cas: tuple = None
    # Keys that must stay alive until all is answered.
    alive: set = dataclasses.field(default_factory=set)
    # Keys that a command has read.
    read: set = dataclasses.field(default_factory=set)
    # Keys that get a new life, in seconds.
    lives: dict = dataclasses.field(default_factory=dict)
    names_mortals: bool = False

    def data(self, token):
        """The bytes for the server whose token for a key `token` tells."""
        parts = list(self.commands)
        if self.cas:
            parts.append(cas_command(*self.cas, token(self.cas[0])))
        return b"".join(parts)


def cas_command(key, head, value, token):
    return f"cas {key} {head} {len(value)} {token}\r\n".encode() + value + b"\r\n"


class Stream:
    def __init__(self, seed, single=False):
        self.single = single
        self.random = random.Random(seed)
        # Key to (alive until, dead from).
        self.lives = {}
        # Keys whose token is known, in the order of learning.
        self.known = {}
        # A server that has stalled may go by an old time until then.
        self.rests_until = 0

    def batch(self):
        pick = self.random.random()
        batch = Batch()
        now = time.monotonic()
        self.mortal = [key for key in MORTAL if self.is_clear(key, now)] if now > self.rests_until else []
        if pick < 0.2 and self.known:
            # As a client would, not long after the gets.
            key = self.random.choice(list(self.known)[-10:])
            self.fill(batch, 0 if self.single else self.random.choice([0, 0, 1, 3]))
            if self.random.random() < 0.1:
                batch.commands.append(self.store("set", key, 0, b"overtaken"))
            batch.cas = (key, f"{self.flags()} {self.random.choice(STAYS)}", self.value())
            self.known.pop(key, None)
            return batch
        count = 1 if pick < 0.5 or self.single else self.random.randint(2, 10) if pick < 0.8 else self.random.randint(11, 60)
        self.fill(batch, count)
        return batch

    def fill(self, batch, count):
        for _ in range(count):
            batch.commands.append(self.command(batch))

    def done(self, batch, before, after, behind):
        """Notes when the keys of a batch that has been answered will expire. The time that a server goes by was so much behind."""
        for key, seconds in batch.lives.items():
            self.lives[key] = (before + seconds - max(1, behind), after + seconds + 1 + SLACK_SECONDS)

    def learn(self, key):
        """Notes that the servers have just told their tokens for a key."""
        if key not in MORTAL:
            self.known.pop(key, None)
            self.known[key] = True

    def in_time(self, batch, before, after):
        """Whether every key that had to be alive was so to the end, and no stall makes the end of a life uncertain."""
        if not batch.names_mortals:
            return True
        if after - before > SLACK_SECONDS:
            self.rests_until = after + SLACK_SECONDS
            return False
        return all(after < self.lives[key][0] for key in batch.alive)

    def is_clear(self, key, now):
        until, since = self.lives.get(key, (0, 0))
        return now > since or now < until - SLACK_SECONDS

    def command(self, batch):
        make = self.random.choices(
            [self.read, self.write, self.count, self.malformed, self.mortals, self.remove, self.rare],
            [28, 27, 14, 14, 8, 7, 1],
        )[0]
        return make(batch)

    def key(self):
        pool = self.random.choices([NORMAL, NUMERIC, MEDIUM, LONG], [80, 10, 6, 2])[0]
        return self.random.choice(pool)

    def flags(self):
        return self.random.choice([0, 0, 1, 32, 65535, 4294967295])

    def value(self):
        kind = self.random.random()
        if kind < 0.2:
            return self.random.choice(NUMBERS)
        if kind < 0.9:
            return random_value(self.random, self.random.randint(0, 200))
        return random_value(self.random, self.random.randint(200, 3000))

    def noreply(self):
        return " noreply" if self.random.random() < 0.15 else ""

    def end(self):
        return b"\n" if self.random.random() < 0.05 else b"\r\n"

    def line(self, text):
        return text.encode() + self.end()

    def store(self, command, key, exptime, value):
        head = f"{command} {key} {self.flags()} {exptime} {len(value)}{self.noreply()}"
        return self.line(head) + value + b"\r\n"

    def read(self, batch):
        command = self.random.choice(["get", "get", "get", "gets", "gets", "gat", "gats"])
        count = self.random.choice([1, 1, 1, 2, 5, 30, 100])
        exptime = ""
        if command in ("gat", "gats"):
            exptime, count = f" {self.random.choice(STAYS)}", min(count, 5)
        keys = [self.key() for _ in range(count)]
        batch.read.update(keys)
        return self.line(f"{command}{exptime} {' '.join(keys)}")

    def write(self, _):
        command = self.random.choice(["set"] * 6 + ["add", "replace", "append", "prepend"])
        if self.random.random() < 0.01:
            return self.large(command)
        if self.random.random() < 0.03:
            value = self.random.randbytes(self.random.randint(3000, 50_000))
            return self.store("set", self.random.choice(MEDIUM), 0, value)
        exptime = self.random.choice(GONE if self.random.random() < 0.05 else STAYS)
        # Letters at the ends, so that numbers do not grow by being put together.
        value = self.value() if command in ("set", "add", "replace") else b"x" + self.value()[:18] + b"x"
        return self.store(command, self.key(), exptime, value)

    def large(self, command):
        key = self.random.choice(LARGE)
        if self.random.random() < 0.3:
            return self.store(command, key, 0, bytes(self.random.choice(TOO_LARGE)))
        if self.random.random() < 0.5:
            return self.line(f"get {key}")
        return self.store("set", key, 0, self.random.randbytes(self.random.randint(50_000, 1_040_000)))

    def count(self, batch):
        key = self.random.choice(NUMERIC)
        if self.random.random() < 0.2:
            return self.store("set", key, 0, self.random.choice(NUMBERS))
        if key in batch.read or self.random.random() < 0.3:
            batch.read.add(key)
            return self.line(f"get {key}")
        return self.line(f"{self.random.choice(['incr', 'decr'])} {key} {self.random.choice(DELTAS)}{self.noreply()}")

    def remove(self, _):
        if self.random.random() < 0.5:
            return self.line(f"delete {self.key()}{self.random.choice(['', '', ' 0', ' noreply', ' 0 noreply'])}")
        return self.line(f"touch {self.key()} {self.random.choice(STAYS * 3 + GONE)}{self.noreply()}")

    def mortals(self, batch):
        """Commands on keys that live for some seconds."""
        usable = [key for key in self.mortal if key not in batch.lives]
        if not usable:
            return self.line("get absent")
        key = self.random.choice(usable)
        batch.names_mortals = True
        seconds = self.random.choice(LIVES_SECONDS)
        kind = self.random.random()
        if self.lives.get(key, (0, 0))[0] > time.monotonic():
            batch.alive.add(key)
        if kind < 0.35:
            batch.lives[key] = seconds
            return self.store("set", key, seconds, self.value())
        if kind < 0.55:
            # It gets a new life or is not there: either way it is left alone for as long.
            batch.lives[key] = seconds
            return self.line(f"touch {key} {seconds}" if kind < 0.45 else f"gat {seconds} {key}")
        if kind < 0.65:
            return self.store(self.random.choice(["append", "prepend"]), key, 0, b"x")
        if kind < 0.75:
            return self.line(f"delete {key}")
        return self.line(f"{self.random.choice(['get', 'gets'])} {key}")

    def rare(self, _):
        kind = self.random.random()
        if kind < 0.02:
            self.known.clear()
            return self.line(self.random.choice(["flush_all", "flush_all 0", "flush_all noreply", "flush_all -1"]))
        if kind < 0.3:
            return self.line(self.random.choice(["verbosity 1", "verbosity 0 noreply", "version"]))
        value = self.value()
        token = self.random.choice(["1", "0", "18446744073709551615"])
        return self.line(f"cas {self.key()} 0 0 {len(value)} {token}{self.noreply()}") + value + b"\r\n"

    def malformed(self, batch):
        pick = self.random.choice
        kind = self.random.randint(0, 9)
        value = pick([b"", b"value\r\n", b"value\r\n"])
        if kind == 0:
            return self.line(f"{pick(WORDS)}{pick(['', ' key1', ' ' + pick(NUMBER)])}{pick(TAIL)}")
        if kind == 1:
            batch.read.update(["key1", "key2"])
            overlong = [] if batch.commands else ["get " + "k" * 251, "get key1 " + "k" * 251]
            return self.line(pick(["", " ", "get", "gets", "get ", "  get key1", "get  key1  key2 ", *overlong]))
        if kind == 2:
            command = pick(["set", "add", "replace", "append", "prepend", "cas"])
            words = [pick(KEY), pick(NUMBER), pick(NUMBER), "abc", "5"][: self.random.randint(0, 4)]
            return self.line(" ".join([command, *words]) + pick(["", " noreply", " "])) + value
        if kind == 3:
            length = pick(["-1", "abc", "1a", "2147483648", "-5 noreply", "", "5 norepl extra x"])
            # A length that can be read is that of a value.
            value = b"value\r\n" if length.startswith("5") else value
            return self.line(f"{pick(['set', 'add', 'cas'])} {pick(KEY)} {pick(NUMBER)} 0 {length}") + value
        if kind == 4:
            # A value that is longer or shorter than announced; the pad keeps the next command out of it.
            announced, real = self.random.randint(0, 20), self.random.randint(0, 20)
            head = self.line(f"set {pick(NORMAL)} 0 0 {announced}{self.noreply()}")
            return head + b"v" * real + b"\r\n" + b"\n" * max(0, announced - real)
        if kind == 5:
            command, numbers = pick([("incr", NUMBER), ("decr", NUMBER), ("touch", EXPTIME)])
            key = pick([key for key in KEY if key not in batch.read] or ["0"])
            return self.line(f"{command} {key}{pick(['', ' ' + pick(numbers)])}{pick(TAIL)}")
        if kind == 6:
            batch.read.update(KEY)
            keys = [key for key in KEY if len(key) <= 250 or not batch.commands]
            return self.line(f"{pick(['gat', 'gats'])}{pick(['', ' ' + pick(EXPTIME)])}{pick(['', ' ' + pick(keys)])}")
        if kind == 7:
            return self.line(f"delete{pick(['', ' ' + pick(KEY)])}{pick(TAIL)}")
        if kind == 8:
            head = f"{pick(['set', 'add', 'replace'])} {pick(KEY)} {pick(NUMBER)} {pick(STAYS + GONE)} 5"
            return self.line(head + pick(TAIL)) + b"value\r\n"
        return self.line(
            pick(
                [
                    "verbosity",
                    "flush_all abc",
                    "cache_memlimit",
                    "cache_memlimit abc",
                    "incr",
                    "decr",
                    "touch",
                    "delete",
                ]
            )
        )
