"""A small application, run as a program: static and dynamic pages, and a control that breaks it in the middle.

Its arguments: port, file that counts requests and says what to do, and for TLS a certificate and its key. The file
`<state>.mode` says how it answers: `well`, `broken` (500), `hanging`, or `moved` (another body
of /where); it appends a letter to `<state>.count` for
each request, `b` if it was not well then.
"""

import ssl
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path

COUNTER = count()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        mode = MODE.read_text() if MODE.exists() else "well"
        with COUNTS.open("a") as file:
            file.write("w" if mode == "well" else "b")
        if mode == "hanging":
            time.sleep(30)
        if "session=sesame" not in self.headers.get("Cookie", "session=sesame"):
            return self.answer(403, b"no\n")
        if mode == "broken":
            return self.answer(500, b"broken\n")
        if self.path.startswith("/now"):
            return self.answer(200, b"request %d\n" % next(COUNTER))
        if self.path.startswith("/private") and "Cookie" not in self.headers:
            return self.answer(401, b"log in\n")
        if self.path.startswith("/where"):
            return self.answer(200, mode.encode())
        return self.answer(404 if self.path == "/gone" else 200, self.path.encode() * 20)

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Set-Cookie", "tracker=crumbs")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 256
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that a stopped load leaves."""


if __name__ == "__main__":
    port, state, *certificate = sys.argv[1:]
    MODE, COUNTS = Path(f"{state}.mode"), Path(f"{state}.count")
    server = Server(("127.0.0.1", int(port)), Handler)
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.serve_forever()
