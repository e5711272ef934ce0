"""What Debian's memcached 1.6.18 answers otherwise than 1.6.45, which is the reference, and than Ebbtide where that is on purpose.

Each difference has a name and examples (`EXAMPLES`): what both answer, byte for byte. `translate` gives for the commands of a
random stream what 1.6.18 has to be asked instead so that it says and does what 1.6.45 does with the original, and the names of the
differences that this takes. Where Ebbtide closes the connection there is nothing that 1.6.18 could be asked: `Closes`.
"""

import dataclasses
import re

BAD = b"CLIENT_ERROR bad command line format\r\n"
EXPTIME = b"CLIENT_ERROR invalid exptime argument\r\n"
DELTA = b"CLIENT_ERROR invalid numeric delta argument\r\n"
LONG = b"k" * 251
STORES = {b"set": 5, b"add": 5, b"replace": 5, b"append": 5, b"prepend": 5, b"cas": 6}
# Errors, and what 1.6.18 is asked to get them.
ASK = {
    BAD: b"verbosity x\r\n",
    EXPTIME: b"touch ~none x\r\n",
    DELTA: b"incr ~none x\r\n",
    b"CLIENT_ERROR bad token in command line format\r\n": b"mg ~none Tx\r\n",
    b"CLIENT_ERROR invalid flag\r\n": b"mg ~none y\r\n",
    b"CLIENT_ERROR duplicate flag\r\n": b"mg ~none v v\r\n",
    b"CLIENT_ERROR invalid or duplicate flag\r\n": b"ma ~none v v\r\n",
    b"CLIENT_ERROR error decoding key\r\n": b"mg YQ b\r\n",
    b"CLIENT_ERROR options flags are too long\r\n": b"mg ~none v f c t h l s k u O1 P1 L1 J1 D1 MS T1 R1 C1\r\n",
    b"CLIENT_ERROR opaque token too long\r\n": b"mg ~none O" + b"x" * 32 + b"\r\n",
    b"CLIENT_ERROR invalid numeric initial value\r\n": b"mg ~none Jx\r\n",
    b"CLIENT_ERROR invalid numeric delta value\r\n": b"mg ~none Dx\r\n",
    b"CLIENT_ERROR invalid mode for ms M token\r\n": b"ms ~none 1 MX\r\nx\r\n",
    b"CLIENT_ERROR invalid mode for ma M token\r\n": b"ma ~none MX\r\n",
}


@dataclasses.dataclass(frozen=True)
class Closes:
    """Ebbtide answers this and closes."""

    name: str
    answer: bytes


def unsigned(word, bits):
    return word.isdigit() and int(word) < 1 << bits


def signed(word):
    return re.fullmatch(rb"-?\d+", word) is not None and -(1 << 31) <= int(word) < 1 << 31


def length_of(word):
    return int(word) if unsigned(word, 31) and int(word) <= (1 << 31) - 3 else None


def may_be_number(word):
    """Whether 1.6.18 may read it as a number."""
    return re.match(rb"\s*[+-]?\d+(\s|$)", word) is not None


def line(*words):
    return b" ".join(words) + b"\r\n"


def messages(data):
    """The lines in `data`, each with the value that belongs to it."""
    while data:
        end = data.index(b"\n") + 1
        words = [word for word in data[:end].rstrip(b"\n").removesuffix(b"\r").split(b" ") if word]
        place = 4 if words and words[0] in STORES else 2 if words and words[0] == b"ms" else 99
        length = length_of(words[place]) if len(words) > place else None
        size = end if length is None else end + length + 2
        assert size <= len(data), f"no value in {data}"
        yield words, data[:end], data[end:size]
        data = data[size:]


def translate(data):
    """What to ask 1.6.18 instead of `data`, and the names of the differences; or that Ebbtide closes."""
    asked, names = b"", []
    for words, head, value in messages(data):
        other = differs(words, head, value)
        if isinstance(other, Closes):
            assert not asked, f"only a command of its own may close: {data}"
            return other
        if other:
            names.append(other[0])
        asked += other[1] if other else head + value
    return asked, names


def differs(words, head, value):
    """The name of a difference and what to ask instead; `Closes`; or None."""
    if len(head) > 2048:
        # Closed upon by both unless it is a get.
        return None
    if b"\0" in head:
        # A key that 1.6.18 cannot have is one that it does not have.
        return "a NUL in a key", head.replace(b"\0", b"~") + value
    if len(head) < 4 and head != b"mn\n":
        return "short line", ASK[BAD]
    if not words:
        return None
    command, count, quiet = words[0], len(words), words[-1] == b"noreply"
    if command in STORES:
        return store(words, head, value, quiet)
    if command in (b"mg", b"ms", b"md", b"ma"):
        return meta(words, head, value)
    least = {b"get": 2, b"bget": 2, b"gets": 2, b"gat": 3, b"gats": 3, b"delete": 2, b"incr": 3, b"decr": 3, b"touch": 3, b"verbosity": 2}
    if count < least.get(command, 0):
        return "words missing", ASK[BAD]
    if command in (b"gat", b"gats") and not signed(words[1]) and may_be_number(words[1]):
        return "limits of numbers", ASK[EXPTIME]
    if command == b"delete" and words[2:] not in ([], [b"0"], [b"noreply"], [b"0", b"noreply"]):
        return "words behind the arguments", line(*words[:2], *[b"noreply"] * quiet)
    if command in (b"incr", b"decr", b"touch"):
        error, fits = (EXPTIME, signed(words[2])) if command == b"touch" else (DELTA, unsigned(words[2], 64))
        if len(words[1]) <= 250 and not fits and may_be_number(words[2]):
            return "limits of numbers", b"" if quiet else ASK[error]
        if count > 4:
            return "words behind the arguments", line(*words[:3], *[b"noreply"] * quiet)
    if command == b"verbosity" and (count > 3 or not unsigned(words[1], 32)):
        fits = unsigned(words[1], 32)
        return "words behind the arguments", line(*words[:2], *[b"noreply"] * quiet) if fits else b"" if quiet else ASK[BAD]
    if command == b"flush_all" and count > 3:
        return "words behind the arguments", line(*words[:2], *[b"noreply"] * quiet)
    known = [*least, b"me", b"mn", b"version", b"flush_all", b"cache_memlimit", b"quit", b"stats"]
    if command not in known and quiet:
        return "quiet unknown command", b""
    return None


def store(words, head, value, quiet):
    command, count, arguments = words[0], len(words), STORES[words[0]]
    if count < 5:
        if any(unsigned(word, 64) for word in words[1:]):
            return Closes("value of unknown length", BAD)
        return "words missing", ASK[BAD]
    if length_of(words[4]) is None:
        return Closes("value of unknown length", BAD)
    if any(unsigned(word, 64) for word in words[arguments:]):
        return Closes("value of unknown length", b"" if quiet else BAD)
    fits = len(words[1]) <= 250 and unsigned(words[2], 32) and signed(words[3])
    if not fits or (command == b"cas" and not (count > 5 and unsigned(words[5], 64))):
        if b"  " in head:
            return Closes("value of unknown length", b"" if quiet else BAD)
        return "value of a refused command", b"" if quiet else ASK[BAD]
    if count > arguments + 1:
        return "words behind the arguments", line(*words[:arguments], *[b"noreply"] * quiet) + value
    return None


def meta_error(command, key, flags):
    """The error of 1.6.45, if there is one."""
    error = None
    if len(key) > 250:
        return BAD
    if len(flags) > (17 if command == b"ms" else 18):
        return b"CLIENT_ERROR options flags are too long\r\n"
    seen = set()
    for flag in flags:
        letter, argument = flag[:1], flag[1:]
        if letter >= b"\x7f" or (letter in seen and letter.isalpha()):
            return b"CLIENT_ERROR duplicate flag\r\n"
        if letter not in [bytes([byte]) for byte in b"bNTRCEFJDOPLMkstcfvhluqIx"]:
            return b"CLIENT_ERROR invalid flag\r\n"
        seen.add(letter)
        if letter == b"b" and not is_base64(key):
            error = b"CLIENT_ERROR error decoding key\r\n"
        if letter in (b"N", b"T", b"R") and not signed(argument) or letter in (b"C", b"E") and not unsigned(argument, 64):
            error = b"CLIENT_ERROR bad token in command line format\r\n"
        if letter == b"F" and not unsigned(argument, 32):
            error = error or BAD
        if letter == b"J" and not unsigned(argument, 64):
            error = b"CLIENT_ERROR invalid numeric initial value\r\n"
        if letter == b"D" and not unsigned(argument, 64):
            error = b"CLIENT_ERROR invalid numeric delta value\r\n"
    return error


def is_base64(key):
    digits = re.sub(rb"[^A-Za-z0-9+/=]", b"", key)
    return len(digits) > 0 and len(digits) % 4 == 0


def meta(words, head, value):
    command, count = words[0], len(words)
    if count == 1 or command == b"ms" and count == 2:
        if count == 2 and unsigned(words[1], 64):
            return Closes("value of unknown length", BAD)
        return "words missing", ASK[BAD]
    key, flags = words[1], words[3:] if command == b"ms" else words[2:]
    if command == b"ms" and length_of(words[2]) is None:
        return Closes("value of unknown length", BAD)
    error = meta_error(command, key, flags)
    if error and command == b"ma":
        error = b"CLIENT_ERROR invalid or duplicate flag\r\n"
    mode = next((flag[1:2] for flag in flags if flag[:1] == b"M"), b"I")
    if not error and command in (b"ma", b"ms") and mode not in ([b"I", b"+", b"D", b"-"] if command == b"ma" else [b"I", b"E", b"A", b"P", b"R", b"S"]):
        error = b"CLIENT_ERROR invalid mode for %b M token\r\n" % command
    if not error and any(flag[:1] == b"O" and len(flag) > 32 for flag in flags):
        error = b"CLIENT_ERROR opaque token too long\r\n"
    if error:
        if command == b"ms" and any(flag[:1].isdigit() for flag in flags):
            return Closes("value of unknown length", error)
        return "value of a refused command" if command == b"ms" else "errors of meta commands", ASK[error]
    modes = [flag for flag in flags if flag[:1] == b"M"]
    if any(len(flag) != 2 for flag in modes) or modes and command in (b"mg", b"md"):
        kept = [flag[:2] if flag[:1] == b"M" else flag for flag in flags if flag[:1] != b"M" or command in (b"ms", b"ma")]
        return "modes of meta commands", line(*words[: 3 if command == b"ms" else 2], *kept) + value
    return None


@dataclasses.dataclass(frozen=True)
class Example:
    name: str
    data: bytes
    # Answers of 1.6.18 and of Ebbtide, as `masked` leaves them. Ebbtide's may end with the connection.
    theirs: bytes
    ours: bytes
    closes: bool = False
    # Flags of servers of its own; `{users}` is a file with USERS.
    flags: tuple = ()
    # Dumps take the connection, and logins come first: nothing can be asked behind them, and each answer ends with its last line.
    is_last: bool = False


def masked(answer):
    """Without numbers that differ from run to run: times, tokens, sizes, whether it was read, and a second that may have gone by."""
    answer = re.sub(rb"\b(la|cas|fetch|size)=\w+", rb"\1=N", answer)
    return re.sub(rb"\bexp=(-?)(99|100)\b", rb"exp=\g<1>100", answer)


# A password may have blanks in 1.6.45: it is all behind the first one. In 1.6.18 blanks around words do not count.
USERS = b"blank:a b\nuser:word\n"
FAILURE = b"CLIENT_ERROR authentication failure\r\n"
NO_DETAIL = b"CLIENT_ERROR stats detail not allowed\r\n"
HIT = b"VALUE k 0 2\r\n10\r\nEND\r\n"
EXAMPLES = [
    Example("short line", b"a\r\n \r\n\n", b"ERROR\r\n" * 3, BAD * 3),
    Example("words missing", b"get\r\ngat 0\r\nincr k\r\nset k\r\nmg\r\n", b"ERROR\r\nEND\r\n" + b"ERROR\r\n" * 3, BAD * 5),
    Example("words behind the arguments", b"incr k 1 foo noreply\r\ntouch k 0 0 0 0\r\nget k\r\n", b"ERROR\r\n" * 2 + HIT, b"TOUCHED\r\n" + HIT.replace(b"10", b"11")),
    Example("words behind the arguments", b"delete k 5\r\n", b"CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n", b"DELETED\r\n"),
    Example("value of a refused command", b"set " + LONG + b" 0 0 9\r\nflush_all\r\nget k\r\n", BAD + b"OK\r\nEND\r\n", BAD + HIT),
    Example("value of a refused command", b"set k bad 0 9 noreply\r\nflush_all\r\nget k\r\n", b"OK\r\nEND\r\n", HIT),
    Example("value of a refused command", b"cas k 0 0 9\r\nflush_all\r\nget k\r\n", b"ERROR\r\nOK\r\nEND\r\n", BAD + HIT),
    Example("value of a refused command", b"ms " + LONG + b" 9\r\nflush_all\r\nget k\r\n", BAD + b"OK\r\nEND\r\n", BAD + HIT),
    Example("value of unknown length", b"set k 0 0 x\r\nflush_all\r\nget k\r\n", BAD + b"OK\r\nEND\r\n", BAD, closes=True),
    Example("value of unknown length", b"set a 0 0 0 9\r\nflush_all\r\nget k\r\n", b"CLIENT_ERROR bad data chunk\r\nERROR\r\n" + HIT, BAD, closes=True),
    Example("value of unknown length", b"set k 0 0 4294967305\r\nflush_all\r\nget k\r\n", b"STORED\r\nVALUE k 0 9\r\nflush_all\r\nEND\r\n", BAD, closes=True),
    Example("limits of numbers", b"touch k 4294967296\r\ngat +0 k\r\n", b"TOUCHED\r\n" + HIT, EXPTIME * 2),
    Example("limits of numbers", b"incr k -18446744073709551615\r\nincr k +1\r\n", b"11\r\n12\r\n", DELTA * 2),
    Example("limits of numbers", b"set k 4294967297 0 2\r\nab\r\nset k 0 4294967296 2\r\nab\r\n", b"STORED\r\n" * 2, BAD * 2),
    Example("limits of numbers", b"ms k 2 F4294967299\r\nab\r\nmg k f\r\n", b"HD\r\nHD f3\r\n", BAD + b"HD f0\r\n"),
    Example("a NUL in a key", b"get k\0y\r\ndelete k\0y\r\n", HIT + b"DELETED\r\n", b"END\r\nNOT_FOUND\r\n"),
    Example("quiet unknown command", b"foo k noreply\r\n", b"ERROR\r\n", b""),
    Example("quiet unknown command", b"lru_crawler metadump all noreply\r\n", b"ERROR\r\n", b""),
    Example("slabs automove window", b"slabs automove window 20\r\n", BAD, b"OK\r\n"),
    Example("slabs automove window", b"slabs automove window 2\r\n", BAD, b"CLIENT_ERROR automove window too low or too high\r\n"),
    Example("slabs automove freeratio", b"slabs automove freeratio 0.01\r\n", BAD, b"OK\r\n"),
    Example("errors of meta commands", b"md k z\r\n", b"CLIENT_ERROR invalid or duplicate flag\r\n", b"CLIENT_ERROR invalid flag\r\n"),
    Example("modes of meta commands", b"mg k M v\r\n", b"CLIENT_ERROR incorrect length for M token\r\n", b"VA 2\r\n10\r\n"),
    Example("mg with C", b"ms k 2 E7\r\n10\r\nmg k v C7\r\n", b"CLIENT_ERROR invalid flag\r\nVA 2\r\n10\r\n", b"HD\r\nHD\r\n"),
    Example("md with x", b"md k x\r\nmg k v\r\n", b"CLIENT_ERROR invalid or duplicate flag\r\nVA 2\r\n10\r\n", b"HD\r\nVA 0\r\n\r\n"),
    Example("ms with N", b"ms new 1 MA N0\r\nx\r\n", b"NS\r\n", b"HD\r\n"),
    Example("ms with s", b"ms k 1 MA s\r\nx\r\nms k 1 ME s\r\nx\r\n", b"HD\r\nNS\r\n", b"HD s3\r\nNS s1\r\n"),
    Example("ma with q creates quietly", b"ma new N0 q\r\n", b"HD\r\n", b""),
    Example(
        *["me with a life", b"set k 0 100 1\r\nv\r\nme k\r\n", b"STORED\r\nME k exp=-100 la=N cas=N fetch=N cls=1 size=N\r\n"],
        b"STORED\r\nME k exp=100 la=N cas=N fetch=N cls=1 size=N\r\n",
    ),
    Example(
        *["first line and fields of dumps", b"lru_crawler metadump all\r\n", b"key=k exp=-1 la=N cas=N fetch=N cls=1 size=N\nEND\r\n"],
        b"OK\r\nkey=k exp=-1 la=N cas=N fetch=N cls=1 size=N flags=0 \nEND\r\n",
        is_last=True,
    ),
    Example("mgdump", b"lru_crawler mgdump all\r\n", b"ERROR\r\n", b"OK\r\nmg k\r\nEN\r\n", is_last=True),
    Example("stats detail with -X", b"stats detail on\r\nstats detail off\r\n", b"OK\r\n" * 2, NO_DETAIL * 2, flags=("-X",)),
    Example("stats detail with -X", b"stats detail dump\r\n", b"END\r\n", NO_DETAIL, flags=("-X",)),
    Example("stats detail with -X", b"stats detail x\r\n", b"CLIENT_ERROR usage: stats detail on|off|dump\r\n", NO_DETAIL, flags=("-X",)),
    Example("mgdump", b"lru_crawler mgdump all\r\n", b"ERROR\r\n", b"ERROR key dump not allowed\r\n", flags=("-X",)),
    Example("limits of numbers", b"stats cachedump 4294967298 1\r\n", b"END\r\n", b"CLIENT_ERROR bad command line format\r\n"),
    Example("passwords with blanks", b"set x 0 0 9\r\nblank a b\r\n", FAILURE, b"STORED\r\n", flags=("-Y", "{users}"), is_last=True),
    Example("passwords with blanks", b"set x 0 0 10\r\nuser  word\r\n", b"STORED\r\n", FAILURE, flags=("-Y", "{users}"), is_last=True),
    Example("passwords with blanks", b"set x 0 0 10\r\n user word\r\n", b"STORED\r\n", FAILURE, flags=("-Y", "{users}"), is_last=True),
]
