"""The same random meta commands, mixed with classic ones, to memcached and to Ebbtide: the same answers, byte for byte.

What is approximate here is blanked or compared within its bounds: cas tokens, h (the count of a key's uses outlives its value) and
l (shared by neighbours); t within 2 s and 1.6 %; of an `me` line the names only; k in whichever spelling of the key
(`docs/compatibility.md`). What 1.6.18 has no words for is left to the wire tests and to `versions.py`: E, the x of md, the C of mg, the N and s
of ms, and a ma with q that creates. For other differences between 1.6.18 and 1.6.45, which is the reference, `versions.py` knows what to ask
1.6.18 instead. Every server gets its own tokens: the last
one it told of a key, an older one, or one that is higher than any. A false conflict cannot be told from a true one in a pipeline,
so a batch with a valid token ends with it, and a conflict there is counted, as in `test_differential.py`.

EBBTIDE_SEED repeats a run, EBBTIDE_META_COMMANDS sets its length.
"""

import base64
import os
import random
import re
from collections import Counter

from harness import EBBTIDE, MEMCACHED, Server
from stream import random_value
from test_differential import FLAGS, SEED, UNMARKED, Side, short
from versions import Closes, translate

COMMANDS = int(os.environ.get("EBBTIDE_META_COMMANDS", "60000"))
SHOWN = 5
KEYS = [f"key{i}" for i in range(60)]
NUMBERS = [f"n{i}" for i in range(15)]
BINARY = [f"bin{i}" for i in range(15)]
# No second of theirs comes during a run, however slow, and no remaining life passes one of the thresholds of R.
LIVES = ["0", "0", "1000", "1200", "10000", "100000"]
THRESHOLDS = ["100", "500", "1100", "-1", "0"]
OPAQUE = ["O1", "Oabc", "O" + "x" * 31, "O" + "x" * 30, "O", "O!~"]
REFLECTED = ["k", "q", "P1", "Lpath/", "v", "u"]
BAD = ["y", "Nx", "Tx", "Rx", "T", "Cx", "C-1", "Fx", "F-1", "MX", "M", "MEE", "Jx", "Dx", "1", "~", "\x7f", "v v", "k k", "S5", "N1.5", "T1a"]
BAD += ["O" + "x" * 32, "b", " ".join(f"P{i}" for i in range(3)), "v f c t h l s k q u O1 P1 L1 J1 D1 MS T1000 R1", "T99999999999999999999", "D18446744073709551616"]


class Stream:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def some(self, flags, most=4):
        chosen = self.random.sample(flags, self.random.randint(0, min(most, len(flags))))
        self.random.shuffle(chosen)
        return chosen

    def key(self, pool=KEYS):
        """A key as a line names it, and the flag that this takes."""
        key = self.random.choice(pool)
        if pool is BINARY:
            return base64.b64encode(key.encode()).decode(), ["b"]
        return key, []

    def pool(self):
        return self.random.choices([KEYS, NUMBERS, BINARY], [75, 15, 10])[0]

    def line(self, command, key, flags, length=None):
        words = [command, key] + ([] if length is None else [str(length)])
        self.random.shuffle(flags)
        space = "  " if self.random.random() < 0.03 else " "
        return (space.join(words + flags) + self.random.choice(["\r\n"] * 9 + ["\n"])).encode("latin1")

    def token(self, key):
        """A flag whose token each server knows for itself."""
        return self.random.choice([f"C<{key}>", f"C<{key}>", f"C<{key}:old>", "C<high>", "C0"])

    def get(self):
        pool = self.pool()
        key, flags = self.key(pool)
        flags += self.some(["s", "t", "c", "f", "h", "l", *REFLECTED, self.random.choice(OPAQUE)], 7)
        lives = [f"T{self.random.choice(LIVES)}", f"R{self.random.choice(THRESHOLDS)}"]
        # Of an empty value memcached says that it is no number before it looks at a token; others it reads after that.
        lives += [] if pool is NUMBERS else [f"N{self.random.choice(LIVES)}"]
        if self.random.random() < 0.4:
            flags += self.some(lives, 3)
        return self.line("mg", key, flags)

    def value(self, pool):
        if pool is NUMBERS:
            return self.random.choice([b"0", b"5", b"9", b"10", b"99", b"007", b"x", b" 7", b"12 a"])
        return random_value(self.random, self.random.choice([0, 1, 5, 30, 200, 3000]))

    def set(self, valid=False):
        pool = KEYS if valid else self.pool()
        key, flags = self.key(pool)
        value = self.value(pool)
        flags += self.some(["c", "k", "q", "v", "t", self.random.choice(OPAQUE)], 3)
        flags += self.some([f"F{self.random.choice([0, 1, 4294967295, 4294967296])}", f"T{self.random.choice(LIVES)}"])
        mode = self.random.choice(["S", "S", "S", "E", "R", "A", "P"])
        if mode in "AP":
            value = b"x" + value[:20]
        if mode != "S" or self.random.random() < 0.3:
            flags.append(f"M{mode}")
        if valid:
            flags += [f"C<{key}>"] + self.some(["I"])
            flags = [flag for flag in flags if flag != "q"]
        elif self.random.random() < 0.15:
            flags += [self.random.choice([f"C<{key}:old>", "C<high>", "C0"])] + self.some(["I"])
        elif self.random.random() < 0.1:
            flags.append("I")
        return self.line("ms", key, flags, len(value)) + value + b"\r\n"

    def delete(self, valid=False):
        key, flags = self.key(KEYS if valid else self.pool())
        flags += self.some(["k", "q", "v", "t", "c", self.random.choice(OPAQUE)], 3)
        if self.random.random() < 0.75:
            flags += ["I"] + self.some([f"T{self.random.choice(LIVES)}"])
        if valid:
            flags = [flag for flag in flags if flag != "q"] + [f"C<{key}>"]
        elif self.random.random() < 0.2:
            flags.append(self.random.choice([f"C<{key}:old>", "C<high>", "C0"]))
        return self.line("md", key, flags)

    def arithmetic(self, valid=False):
        key, flags = self.key(NUMBERS)
        flags += self.some(["k", "v", "t", "c", "q", self.random.choice(OPAQUE)], 5)
        flags += self.some([f"D{self.random.choice([0, 1, 2, 10, 100])}", f"J{self.random.choice([0, 7, 100])}"])
        flags += self.some([f"N{self.random.choice(LIVES)}", f"M{self.random.choice('I+')}"])
        if any(flag.startswith("N") for flag in flags):
            flags = [flag for flag in flags if flag != "q"]
        # Without T, which 1.6.18 gives to the old item when a number grows.
        if valid:
            flags = [flag for flag in flags if flag != "q"] + [f"C<{key}>"]
        elif self.random.random() < 0.15:
            flags.append(self.random.choice([f"C<{key}:old>", "C<high>", "C0"]))
        return self.line("ma", key, flags)

    def classic(self):
        key = self.random.choice(KEYS + NUMBERS)
        value = self.value(NUMBERS if key in NUMBERS else KEYS)
        exptime = self.random.choice(LIVES)
        return self.random.choice(
            [
                f"get {key}\r\n".encode(),
                f"gets {key} {self.random.choice(KEYS)}\r\n".encode(),
                f"set {key} 3 {exptime} {len(value)}\r\n".encode() + value + b"\r\n",
                f"append {key} 0 0 1\r\nx\r\n".encode() if key in KEYS else b"get none\r\n",
                f"touch {key} {exptime}\r\n".encode(),
                f"gat {exptime} {key}\r\n".encode(),
                f"incr {self.random.choice(NUMBERS)} {self.random.choice([1, 5, 90])}\r\n".encode(),
                f"delete {key}\r\n".encode(),
            ]
        )

    def malformed(self):
        key, flags = self.random.choice([*KEYS[:5], "k" * 250, "k" * 251, "YQ==", "YQ", "Y.Q==", "a\tb"]), []
        flags += self.some(["k", "v", "t", *REFLECTED], 2) + [self.random.choice(BAD)] + self.some(["Tx", "y", "Nx", "Fx"], 1)
        command = self.random.choice(["mg", "md", "ma", "ms", "ms"])
        if command == "ma":
            # A long opaque token is found by memcached after it has counted.
            flags = [flag for flag in flags if len(flag) < 33]
        if self.random.random() < 0.1:
            return self.random.choice([b"mg\r\n", b"md\r\n", b"ma\r\n", b"me\r\n", b"ms\r\n", b"ms a\r\n", b"mx a\r\n", b"m\r\n", b"mn x y\r\n", b"ms a x\r\n", b"MG a\r\n"])
        if command != "ms":
            return self.line(command, key, flags)
        # The newlines keep the next command out of a value that was not taken, or not all of it.
        return self.line("ms", key, flags, self.random.choice(["5", "5", "5", "-1", "x", "3", "7"])) + b"value\r\n\n\n"

    def batch(self):
        make = [self.get, self.set, self.delete, self.arithmetic, self.classic, self.malformed, lambda: b"mn\r\n", self.debug]
        count = 1 if "EBBTIDE_SINGLE" in os.environ else self.random.choice([1, 1, 2, 5, 20, 60])
        commands = self.random.choices(make, [40, 22, 8, 10, 14, 6, 1, 1], k=count)
        batch = [command() for command in commands]
        # memcached changes a number in place only if no answer with its old value is under way: so counts come first.
        batch.sort(key=lambda command: not command.lstrip().startswith((b"ma ", b"incr ")))
        if self.random.random() < 0.3:
            return batch, self.random.choice([self.set, self.delete, self.arithmetic])(valid=True)
        return batch, None

    def debug(self):
        key, flags = self.key(self.pool())
        return self.line("me", key, flags)


class TokenSide(Side):
    """A server, and the tokens that it has told."""

    def __init__(self, server):
        super().__init__(server)
        self.last, self.old = {}, {}

    def fill(self, data):
        """Puts this server's tokens in."""

        def token(match):
            name = match.group(1).decode()
            if name == "high":
                return b"18446744073709551000"
            if name.endswith(":old"):
                return str(self.old.get(name[:-4], 1)).encode()
            return str(self.last.get(name, 1)).encode()

        # Not in values, which would get another length.
        return re.sub(rb"(?<= C)<([a-z0-9]+(?::old)?)>", token, data)

    def learn(self, key):
        # Without a mark, which is a write: it may share the bucket of the key, and change the token.
        answer = self.connection.ask(f"mg {key} c u\r\nmn\r\n".encode(), b"MN\r\n")
        found = re.search(rb" c(\d+)", answer)
        if found and (token := int(found.group(1))) != self.last.get(key):
            self.old[key] = self.last.get(key, 1)
            self.last[key] = token


def answers(data):
    """The answers in `data` one by one: bytes, or a line's words with what is approximate apart."""
    found, at = [], 0
    while at < len(data):
        end = data.find(b"\r\n", at)
        end = len(data) if end < 0 else end + 2
        line, value = data[at : end - 2], b""
        if line.startswith(b"VALUE ") or line.startswith(b"VA "):
            length = line.split(b" ")[3 if line.startswith(b"VALUE ") else 1]
            value = data[end : end + int(length) + 2]
            end += len(value)
        found.append((line, value))
        at = end
    return found


def normal(line):
    """A line without what is approximate; lives apart."""
    words, lives = line.split(b" "), []
    if words[0] == b"VALUE" and len(words) == 5:
        words[4] = b"<cas>"
    if words[0] == b"ME":
        return [b"ME"] + [word.split(b"=")[0] for word in words[2:]], []
    if words[0] in (b"HD", b"VA", b"EX", b"NF", b"NS", b"EN"):
        for at in range(1 + (words[0] == b"VA"), len(words)):
            letter = words[at][:1]
            if letter == b"t":
                lives.append(int(words[at][1:]))
            if letter == b"k" and words[at + 1 : at + 2] == [b"b"]:
                # In whichever spelling a server tells it.
                words[at : at + 2] = [b"k" + base64.b64decode(words[at][1:]), b""]
            if letter in b"chl" and words[at] != b"c0" or letter == b"t":
                words[at] = letter
    return [word for word in words if word], lives


def same(ours, theirs):
    if ours[1] != theirs[1]:
        return False
    our_words, our_lives = normal(ours[0])
    their_words, their_lives = normal(theirs[0])
    near = (abs(a - b) <= 2 + 0.016 * max(a, b) and (a < 0) == (b < 0) for a, b in zip(our_lives, their_lives))
    return our_words == their_words and all(near)


def test_the_same_meta_commands_get_the_same_answers():
    print(f"EBBTIDE_SEED={SEED}")
    stream = Stream(SEED)
    count = mark = valid = conflicts = 0
    differences, named = [], Counter()
    with Server(EBBTIDE, *FLAGS) as ebbtide, Server(MEMCACHED, *FLAGS) as memcached:
        sides = [TokenSide(ebbtide), TokenSide(memcached)]
        for side in sides:
            # memcached's first token is 1, which stands here for one that a key never had.
            side.ask(b"set first 0 0 1\r\n1\r\n", mark := mark + 1)
        while count < COMMANDS and len(differences) < SHOWN:
            batch, last = stream.batch()
            count += len(batch) + (last is not None)
            kept = []
            for command in batch:
                # Only lines without a token of a server's own close.
                if not isinstance(closes := translate(sides[1].fill(command)), Closes):
                    kept.append(command)
                    continue
                named[closes.name] += 1
                said = sides[0].ask(command, mark := mark + 1)
                if said != closes.answer + b"\r\n" + UNMARKED:
                    differences.append(f"{short(said)} instead of a close, after {short(command, 160)}")
            batch = kept
            sides[0].answer = answers(sides[0].ask(sides[0].fill(b"".join(batch)), mark := mark + 1))
            translations = [translate(sides[1].fill(command)) for command in batch]
            named.update(name for _, names in translations for name in names)
            sides[1].answer = answers(sides[1].ask(b"".join(asked for asked, _ in translations), mark := mark + 1))
            ours, theirs = (side.answer for side in sides)
            if last:
                key = re.search(rb"C<([a-z0-9]+)>", last).group(1).decode()
                valid += 1
                for side in sides:
                    side.learn(key)
                asked, names = translate(sides[1].fill(last))
                named.update(names)
                sides[0].answer = answers(sides[0].ask(sides[0].fill(last), mark := mark + 1))
                sides[1].answer = answers(sides[1].ask(asked, mark := mark + 1))
                # Nothing came between: our token is as good as memcached's.
                ours, theirs = ours + sides[0].answer, theirs + sides[1].answer
                conflicts += sides[0].answer[:1] != sides[1].answer[:1] and sides[0].answer[0][0].startswith(b"EX")
            differs = next((at for at, (a, b) in enumerate(zip(ours, theirs)) if not same(a, b)), None)
            if differs is None and len(ours) != len(theirs):
                differs = min(len(ours), len(theirs))
            if differs is not None:
                shown = [str([short(part) for part in side[differs]]) if differs < len(side) else "nothing" for side in (theirs, ours)]
                lines = "\n    ".join(short(command, 160) for command in [*batch, last or b""])
                differences.append(f"answer {differs}: memcached {shown[0]}, ebbtide {shown[1]}, after\n    {lines}")
                flush = b"".join(f"delete {key} noreply\r\n".encode() for key in KEYS + NUMBERS + BINARY)
                for side in sides:
                    side.ask(flush, mark := mark + 1)
    print(", ".join(f"{times} times {name}" for name, times in named.items()))
    print(f"{count} commands, {valid} with a valid token, {conflicts} false conflicts")
    assert differences == [], "\n".join(differences)
    assert len(named) >= 5, "the stream meets differences of the versions"
    assert valid > COMMANDS / 200
    assert conflicts == 0
