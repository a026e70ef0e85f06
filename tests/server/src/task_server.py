"""Serves the files of a directory, and answers that are none. Prints its port.

/none is a 404; /large?N names a length of N bytes and /endless names none; /slow sends a byte a second.
"""

import http.server
import sys
import time


class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *args):
        super().__init__(*args, directory=sys.argv[1])

    def do_GET(self):
        path, _, query = self.path.partition("?")
        if path == "/large":
            self.begin(query)
            self.pour(int(query))
        elif path == "/endless":
            self.begin(None)
            self.pour(1 << 40)
        elif path == "/slow":
            self.begin("1000")
            while self.try_write(b"x"):
                time.sleep(1)
        else:
            super().do_GET()

    def begin(self, length):
        self.send_response(200)
        if length is not None:
            self.send_header("Content-Length", length)
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True

    def pour(self, count):
        piece = bytes(1 << 16)
        while count > 0 and self.try_write(piece[:count]):
            count -= len(piece)

    def try_write(self, piece):
        try:
            self.wfile.write(piece)
            return True
        except OSError:
            return False

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
server.daemon_threads = True
print(server.server_address[1], flush=True)
server.serve_forever()
