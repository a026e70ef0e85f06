//! A web server on the loopback of the host, over TLS and without.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

/// What `/private/` is for.
pub const ORIGIN_SECRET: &str = "sk-the-secret-of-the-origin";

/// Answers `GET /path` with `hello /path`, `/echo` with the credentials that it got, between words, `/sum` with
/// their digest, `/drip` without an end, `/hold` as `/echo` without an end, and `/files/` and `/private/` with files, the latter for the holder of
/// [`ORIGIN_SECRET`] alone. It prints its two ports.
const ORIGIN_SERVER: &str = r"
import hashlib, http.server, os, ssl, sys, threading, time

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def do_GET(self):
        got = self.headers.get('Authorization', 'none')
        status, body = 200, b'hello ' + self.path.encode()
        if self.path.startswith('/echo'):
            body = b'got ' + got.encode() + b' indeed'
        elif self.path.startswith('/sum'):
            body = hashlib.sha256(got.encode()).hexdigest().encode()
        elif self.path.startswith('/drip'):
            return self.drip()
        elif self.path.startswith('/hold'):
            return self.hold(b'got ' + got.encode() + b' indeed')
        elif self.path.startswith('/private/') and got != 'Bearer ' + os.environ['ORIGIN_SECRET']:
            status, body = 401, b'no'
        elif self.path.startswith(('/private/', '/files/')):
            status, body = self.file(self.path.split('?')[0].split('/', 2)[2])
        self.send_response(status)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def hold(self, body):
        self.send_response(200)
        self.send_header('Content-Length', str(len(body) + 1))
        self.end_headers()
        self.wfile.write(body)
        time.sleep(600)
    def drip(self):
        self.send_response(200)
        self.send_header('Transfer-Encoding', 'chunked')
        self.end_headers()
        try:
            while True:
                self.wfile.write(b'1\r\n.\r\n')
                time.sleep(0.05)
        except OSError:
            self.close_connection = True
    def file(self, name):
        try:
            with open(os.path.join('served', name), 'rb') as file:
                return 200, file.read()
        except OSError:
            return 404, b'none'
    def log_message(self, *_):
        pass

plain = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
tls = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')
tls.socket = context.wrap_socket(tls.socket, server_side=True)
print(plain.server_port, tls.server_port, flush=True)
threading.Thread(target=plain.serve_forever, daemon=True).start()
tls.serve_forever()
";

/// Makes an authority in `directory`, `ca.pem`, and the certificate that it gives to the hosts `names`: `cert.pem` with
/// `key.pem`.
pub fn make_certificates(directory: &Path, names: &[&str]) {
    let subject: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
    let openssl = |arguments: &str| {
        let made = Command::new("openssl")
            .args(arguments.split_whitespace())
            .current_dir(directory)
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    openssl(&format!("req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority"));
    openssl(&format!(
        "req {key} -keyout key.pem -out leaf.csr -subj /CN=server -addext subjectAltName={}",
        subject.join(",")
    ));
    openssl(
        "x509 -req -in leaf.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 \
         -copy_extensions copyall -out cert.pem",
    );
}

/// The server, which ends with this value.
#[derive(Debug)]
pub struct Origin {
    process: Child,
    directory: TempDir,
    /// Its port without TLS.
    pub plain: u16,
    /// Its port with TLS.
    pub tls: u16,
}

impl Origin {
    /// Starts it.
    pub fn start() -> Self {
        let directory = TempDir::new().unwrap();
        make_certificates(directory.path(), &["localhost", "origin.test"]);
        fs::create_dir(directory.path().join("served")).unwrap();
        let mut process = Command::new("python3")
            .args(["-c", ORIGIN_SERVER])
            .env("ORIGIN_SECRET", ORIGIN_SECRET)
            .current_dir(directory.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let mut ports = line.split_whitespace().map(|port| port.parse().unwrap());
        let (plain, tls) = (ports.next().unwrap(), ports.next().unwrap());
        Self { process, directory, plain, tls }
    }

    /// The certificate that signed the one of its names, `localhost` and `origin.test`.
    pub fn certificate(&self) -> String {
        fs::read_to_string(self.certificate_file()).unwrap()
    }

    /// The file with it.
    pub fn certificate_file(&self) -> PathBuf {
        self.directory.path().join("ca.pem")
    }

    /// What it serves below `/files/` and `/private/`.
    pub fn served(&self) -> PathBuf {
        self.directory.path().join("served")
    }

    /// Both ports, as entries of an allow-list.
    pub fn entries(&self) -> [String; 2] {
        [self.plain, self.tls].map(|port| format!("localhost:{port}"))
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
