"""Serves the repositories below the working directory by git http-backend, and prints its port.

A path that begins with /old/ is served as a server of protocol version 0 does, and one that begins with
/files/ as a server of plain files does. Each request is a line of the file requests.log.
"""

import http.server
import os
import subprocess
import threading

LOCK = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def serve(self):
        path, _, query = self.path.partition("?")
        with LOCK, open("requests.log", "a") as log:
            log.write("%s %s\n" % (self.command, self.path))
        if path.startswith("/files/"):
            path, query = path.removeprefix("/files"), ""
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": "/nonexistent",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "GIT_PROJECT_ROOT": os.getcwd(),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path.removeprefix("/old"),
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "REMOTE_ADDR": "127.0.0.1",
        }
        if not path.startswith("/old/"):
            environment["GIT_PROTOCOL"] = self.headers.get("Git-Protocol", "")
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        done = subprocess.run(
            ["git", "http-backend"], input=body, stdout=subprocess.PIPE, env=environment
        )
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().splitlines()]
        status = next((int(value.split()[0]) for name, value in headers if name == "Status"), 200)
        self.send_response(status)
        for name, value in headers:
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = serve
    do_POST = serve

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
