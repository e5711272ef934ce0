"""Objects with a TTL each, written and looked up with large pipelines, in either protocol."""

KEY = b"key:%016d"
BATCH = 500


class Answers:
    """Counts how often something is in what a server answers."""

    def __init__(self, connection):
        self.connection = connection
        self.rest = b""

    def lines(self, count):
        """The next `count` lines."""
        while self.rest.count(b"\r\n") < count:
            received = self.connection.recv(1 << 18)
            if not received:
                raise SystemExit("the server has closed the connection")
            self.rest += received
        *found, self.rest = self.rest.split(b"\r\n", count)
        return found


def write(server, numbers, value_bytes, ttl_of):
    """Sets objects; `ttl_of` tells the seconds of a number, 0 for no end."""
    value = b"v" * value_bytes
    form = {"memcached": memcached_set, "redis": redis_set}[server.protocol]
    with server.connect() as connection:
        answers = Answers(connection)
        for start in range(0, len(numbers), BATCH):
            part = numbers[start:start + BATCH]
            connection.sendall(b"".join(form(KEY % number, value, ttl_of(number)) for number in part))
            for line in answers.lines(len(part)):
                if line not in (b"STORED", b"+OK"):
                    raise SystemExit(f"a set was answered {line.decode()}")


def memcached_set(key, value, ttl):
    return b"set %s 0 %d %d\r\n%s\r\n" % (key, ttl, len(value), value)


def redis_set(key, value, ttl):
    words = [b"SET", key, value, *([b"EX", b"%d" % ttl] if ttl else [])]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


def count_present(server, numbers):
    """How many of these objects a client gets, by asking for their lengths."""
    with server.connect() as connection:
        answers = Answers(connection)
        found = 0
        for start in range(0, len(numbers), BATCH):
            part = numbers[start:start + BATCH]
            if server.protocol == "redis":
                connection.sendall(b"".join(b"STRLEN %s\r\n" % (KEY % number) for number in part))
                found += sum(line != b":0" for line in answers.lines(len(part)))
            else:
                connection.sendall(b"".join(b"mg %s s\r\n" % (KEY % number) for number in part))
                found += sum(line.startswith(b"HD") for line in answers.lines(len(part)))
        return found
