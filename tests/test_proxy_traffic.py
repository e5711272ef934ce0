"""What memcached's proxy and mcrouter send to a node, and the answers that they can read.

The bytes are those of memcached's t/proxyunits.t: a proxy that answers for its client sends `noreplY` for `noreply` and
a space for the flag `q`, so that the node answers; it cuts keys by writing spaces over them; it asks for the version
first, and splits a get of several keys. The forms of mcrouter's answers are those of its McAsciiParser.rl.
"""

import re

import pytest

from harness import EBBTIDE, MEMCACHED, Server

PROXY_TRAFFIC = [
    (b"version\r\n", rb"VERSION \d+\.\d+\.\d+\r\n"),
    (b"set /b/a 0 0 2 noreplY\r\nhi\r\n", rb"STORED\r\n"),
    (b"get /b/a\r\n", rb"VALUE /b/a 0 2\r\nhi\r\nEND\r\n"),
    (b"get /b/b\r\n", rb"END\r\n"),
    (b"get /b/a    \r\n", rb"VALUE /b/a 0 2\r\nhi\r\nEND\r\n"),
    (b"get           /b/a\r\n", rb"VALUE /b/a 0 2\r\nhi\r\nEND\r\n"),
    (b"add /b/a 0 0 2 noreplY\r\nno\r\n", rb"NOT_STORED\r\n"),
    (b"replace /b/a 0 0 2 noreplY\r\nho\r\n", rb"STORED\r\n"),
    (b"append /b/a 0 0 1 noreplY\r\n!\r\n", rb"STORED\r\n"),
    (b"prepend /b/a 0 0 1 noreplY\r\n>\r\n", rb"STORED\r\n"),
    (b"gets /b/a\r\n", rb"VALUE /b/a 0 4 \d+\r\n>ho!\r\nEND\r\n"),
    (b"cas /b/a 0 0 2 1 noreplY\r\nhi\r\n", rb"EXISTS\r\n"),
    (b"touch /b/a 50 noreplY\r\n", rb"TOUCHED\r\n"),
    (b"gat 50 /b/a\r\n", rb"VALUE /b/a 0 4\r\n>ho!\r\nEND\r\n"),
    (b"gats 50 /b/a\r\n", rb"VALUE /b/a 0 4 \d+\r\n>ho!\r\nEND\r\n"),
    (b"set /b/n 0 0 1 noreplY\r\n1\r\n", rb"STORED\r\n"),
    (b"incr /b/n 4 noreplY\r\n", rb"5\r\n"),
    (b"decr /b/n 1 noreplY\r\n", rb"4\r\n"),
    (b"ms /b/a 2  \r\nhi\r\n", rb"HD\r\n"),
    (b"ms /b/a 2 \r\nhi\r\n", rb"HD\r\n"),
    (b"ms /b/a 2 C456\r\nhi\r\n", rb"EX\r\n"),
    (b"mg /b/a   t v O1234 k\r\n", rb"VA 2 t-1 O1234 k/b/a\r\nhi\r\n"),
    (b"mg /b/none v   O1\r\n", rb"EN O1\r\n"),
    (b"mg /b/a\r\n", rb"HD\r\n"),
    (b"ma /b/n   v\r\n", rb"VA 1\r\n5\r\n"),
    (b"md /b/a  \r\n", rb"HD\r\n"),
    (b"md /b/a   O2\r\n", rb"NF O2\r\n"),
    (b"mn\r\n", rb"MN\r\n"),
]
# memcached refuses the mangled word of this one.
DELETION = (b"delete /b/n noreplY\r\n", rb"DELETED\r\n")

MCROUTER_ERROR = rb"(SERVER_ERROR|CLIENT_ERROR) [^\d\r\n][^\r\n]*\r\n"
MCROUTER_TRAFFIC = [
    (b"version\r\n", rb"VERSION [^\r\n]+\r\n"),
    (b"delete absent\r\n", rb"(DELETED|NOT_FOUND)\r\n"),
    (b"touch absent 10\r\n", rb"(TOUCHED|NOT_FOUND)\r\n"),
    (b"incr absent 1\r\n", rb"NOT_FOUND\r\n"),
    (b"set key 7 0 5\r\nvalue\r\n", rb"STORED\r\n"),
    (b"get key\r\n", rb"VALUE key 7 5\r\nvalue\r\nEND\r\n"),
    (b"gets key\r\n", rb"VALUE key 7 5 \d+\r\nvalue\r\nEND\r\n"),
    (b"incr key 1\r\n", MCROUTER_ERROR),
    (b"cas absent 0 0 1 1\r\nx\r\n", rb"NOT_FOUND\r\n"),
    (b"set long 0 0 2000000\r\n" + b"x" * 2_000_000 + b"\r\n", MCROUTER_ERROR),
    (b"get " + b"k" * 251 + b"\r\n", MCROUTER_ERROR),
    (b"delete key\r\n", rb"(DELETED|NOT_FOUND)\r\n"),
    (b"flush_all\r\n", rb"OK\r\n"),
    (b"version\r\n", rb"VERSION [^\r\n]+\r\n"),
]


@pytest.fixture(params=[MEMCACHED, EBBTIDE], ids=["memcached", "ebbtide"])
def node(request):
    with Server(request.param) as server:
        yield server


def assert_answers(connection, traffic, piece=1 << 20):
    """All requests in pieces of this number of bytes, without a wait for an answer."""
    requests = b"".join(request for request, _ in traffic) + b"mn\r\nmn\r\n"
    for start in range(0, len(requests), piece):
        connection.send(requests[start : start + piece])
    answers = connection.read_until(b"MN\r\nMN\r\n")
    for request, expected in traffic:
        found = re.match(expected, answers)
        assert found, (request[:60], answers[:120])
        answers = answers[found.end() :]
    assert answers == b"MN\r\nMN\r\n"


# In one packet, as a busy proxy sends, and in pieces that end anywhere.
@pytest.mark.parametrize("piece", [1 << 20, 7])
def test_a_node_answers_all_that_the_proxy_of_memcached_sends(node, piece):
    traffic = PROXY_TRAFFIC + ([DELETION] if node.binary == EBBTIDE else [])
    # The last request is one that ends a pipeline of its own.
    traffic = [(request, answer) for request, answer in traffic if request != b"mn\r\n"]
    with node.connect() as connection:
        assert_answers(connection, traffic, piece)


def test_a_long_pipeline_is_answered_in_order(node):
    """A proxy writes the requests of all its clients to one connection."""
    with node.connect() as connection:
        sets = [(b"ms key%d 8 \r\n%08d\r\n" % (number, number), rb"HD\r\n") for number in range(3000)]
        gets = [(b"mg key%d v O%d\r\n" % (number, number), rb"VA 8 O%d\r\n%08d\r\n" % (number, number)) for number in range(3000)]
        assert_answers(connection, sets + gets)


def test_mcrouter_can_read_every_answer(node):
    with node.connect() as connection:
        assert_answers(connection, MCROUTER_TRAFFIC)
