"""The origin: `/SIZE/NUMBER` is an object of SIZE bytes that may be cached for an hour."""
import hashlib
import http.server
import threading


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # One write for headers and body each would wait for the client's acknowledgement.
    wbufsize = 1 << 16

    def do_GET(self):
        _, size, number = self.path.split("/")
        seed = hashlib.sha256(number.encode()).digest()
        body = (seed * (int(size) // len(seed) + 1))[: int(size)]
        self.send_response(200)
        self.send_header("Cache-Control", "max-age=3600")
        self.send_header("ETag", f'"{number}"')
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", size)
        self.end_headers()
        self.wfile.write(body)
        self.server.requests += 1

    def log_message(self, *_):
        pass


class Origin(http.server.ThreadingHTTPServer):
    """Counts its requests. `with` starts and stops it."""

    daemon_threads = True
    requests = 0

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.port = self.server_address[1]

    def __enter__(self):
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.shutdown()
        self.server_close()
