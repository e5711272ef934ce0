"""Packets of the binary protocol, built and taken apart."""

import dataclasses
import struct

HEADER = struct.Struct(">BBHBBHIIQ")

GET, SET, ADD, REPLACE, DELETE, INCREMENT, DECREMENT, QUIT, FLUSH = range(9)
NOOP, VERSION, GETK, APPEND, PREPEND, STAT = 0x0A, 0x0B, 0x0C, 0x0E, 0x0F, 0x10
TOUCH, GAT, GATK = 0x1C, 0x1D, 0x23
SASL_LIST, SASL_AUTH, SASL_STEP = 0x20, 0x21, 0x22
QUIET = {GET: 0x09, SET: 0x11, ADD: 0x12, REPLACE: 0x13, DELETE: 0x14, INCREMENT: 0x15, DECREMENT: 0x16, QUIT: 0x17}
QUIET |= {FLUSH: 0x18, GETK: 0x0D, APPEND: 0x19, PREPEND: 0x1A, GAT: 0x1E, GATK: 0x24}

OK, EXISTS, TOO_LARGE, AUTH_ERROR = 0, 2, 3, 0x20


def request(opcode, key=b"", extras=b"", value=b"", cas=0, opaque=0, magic=0x80, lengths=None):
    """A request; `lengths` lies about (key, extras, body)."""
    body = extras + key + value
    key_length, extras_length, body_length = lengths or (len(key), len(extras), len(body))
    return HEADER.pack(magic, opcode, key_length, extras_length, 0, 0, body_length, opaque, cas) + body


def put(opcode, key, value, flags=0, exptime=0, **more):
    return request(opcode, key, struct.pack(">II", flags, exptime), value, **more)


def count(opcode, key, delta, initial=0, exptime=0, **more):
    return request(opcode, key, struct.pack(">QQI", delta, initial, exptime), **more)


@dataclasses.dataclass
class Answer:
    opcode: int
    status: int
    opaque: int
    cas: int
    extras: bytes
    key: bytes
    value: bytes

    def __str__(self):
        value = self.value if len(self.value) < 60 else self.value[:60] + b"..."
        return f"{self.opcode:#04x} status {self.status:#x} extras {self.extras} key {self.key} value {value}"


class Reader:
    """Takes answers off a connection of the harness."""

    def __init__(self, connection):
        self.connection = connection

    def answer(self):
        """The next answer, or `None` at the end of the connection."""
        if not self._wait(HEADER.size):
            return None
        received = self.connection.received
        magic, opcode, key, extras, _, status, body, opaque, cas = HEADER.unpack_from(received)
        assert magic == 0x81, bytes(received[:100])
        if not self._wait(HEADER.size + body):
            return None
        data = bytes(received[HEADER.size : HEADER.size + body])
        del received[: HEADER.size + body]
        return Answer(opcode, status, opaque, cas, data[:extras], data[extras : extras + key], data[extras + key :])

    def ask(self, data):
        self.connection.send(data)
        return self.answer()

    def _wait(self, length):
        while len(self.connection.received) < length and not self.connection.closed:
            self.connection.take()
        return len(self.connection.received) >= length
