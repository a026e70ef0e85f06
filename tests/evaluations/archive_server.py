"""Serves archives, and what only looks like one. Prints its port.

/archive has an ETag; /redirect/N leads there by N redirects; /to?URL redirects to that URL; /long names a
length and /endless names none; /silent sends half of its bytes. Each request is a line of requests.log.
"""

import http.server
import threading
import time
import urllib.parse

LOCK = threading.Lock()
BODY = b"an archive"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        with LOCK, open("requests.log", "a") as log:
            log.write("%s %s\n" % (self.path, self.headers.get("If-None-Match", "-")))
        path, _, query = self.path.partition("?")
        if path == "/archive" and self.headers.get("If-None-Match") == '"1"':
            self.answer(304, {}, b"")
        elif path == "/archive":
            self.answer(200, {"ETag": '"1"'}, BODY)
        elif path.startswith("/redirect/"):
            left = int(path.rsplit("/", 1)[1])
            self.answer(302, {"Location": "../redirect/%d" % (left - 1) if left else "/archive"}, b"")
        elif path == "/to":
            self.answer(307, {"Location": urllib.parse.unquote(query)}, b"")
        elif path == "/long":
            self.send_response(200)
            self.send_header("Content-Length", str(1 << 40))
            self.end_headers()
        elif path == "/endless":
            self.send_response(200)
            self.send_header("Connection", "close")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x" * 65536)
            except OSError:
                pass
            self.close_connection = True
        elif path == "/silent":
            self.send_response(200)
            self.send_header("Content-Length", "10")
            self.end_headers()
            self.wfile.write(b"x" * 5)
            self.wfile.flush()
            time.sleep(600)
        else:
            self.answer(404, {}, b"no")

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


plain = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
plain.daemon_threads = True
print(plain.server_port, flush=True)
plain.serve_forever()
