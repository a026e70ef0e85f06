//! A host behind TLS in a process of its own, and a workspace that reaches it: one port through rules, the
//! other through a plain tunnel.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use cofferdam_test_server::service::Setup;
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::families::engine::scene::Engine;

/// Prints its two ports. `/bytes/N` has N bytes, `/events` fifty lines of an event stream, each with the time
/// in seconds.
const HOST: &str = r"
import base64, os, socket, ssl, sys, threading, time
piece = base64.b64encode(os.urandom(768 * 1024))
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('cert.pem', 'key.pem')

def serve(raw):
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream = context.wrap_socket(raw, server_side=True)
    head = b''
    while True:
        while b'\r\n\r\n' not in head:
            more = stream.recv(65536)
            if not more:
                return
            head += more
        path, head = head.split(b' ')[1], head.partition(b'\r\n\r\n')[2]
        if path.startswith(b'/bytes/'):
            left = int(path.split(b'/')[2].split(b'?')[0])
            stream.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n' % left)
            while left:
                left -= stream.send(memoryview(piece)[:left])
        elif path == b'/events':
            stream.sendall(b'HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n')
            for _ in range(50):
                stream.sendall(b'data: %.6f\n\n' % time.time())
                time.sleep(0.01)
            return stream.close()
        else:
            stream.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi')

def quietly(raw):
    try:
        serve(raw)
    except OSError:
        pass

def accept(listener):
    while True:
        threading.Thread(target=quietly, args=(listener.accept()[0],), daemon=True).start()

listeners = [socket.create_server(('127.0.0.1', 0), backlog=128) for _ in range(2)]
print(*(listener.getsockname()[1] for listener in listeners), flush=True)
threading.Thread(target=accept, args=(listeners[0],), daemon=True).start()
accept(listeners[1])
";
/// Where systems keep the certificates that they trust.
const SYSTEM_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// The host, a service and its workspace.
pub struct EgressBench {
    pub engine: Engine,
    workspace: String,
    host: Child,
    directory: TempDir,
    /// Where the URLs of the host begin that is asked through rules.
    pub ruled: String,
    /// The same through a plain tunnel.
    pub tunnelled: String,
}

impl EgressBench {
    pub fn start() -> Self {
        let directory = tempdir().unwrap();
        let script = format!(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
             -subj /CN=localhost -addext subjectAltName=DNS:localhost \
             -addext basicConstraints=critical,CA:FALSE -keyout key.pem -out cert.pem && \
             cat {SYSTEM_BUNDLE} cert.pem >bundle.pem"
        );
        let made =
            Command::new("sh").args(["-c", &script]).current_dir(&directory).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let mut host = Command::new("python3")
            .args(["-c", HOST])
            .current_dir(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(host.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (ruled, tunnelled) = line.trim().split_once(' ').unwrap();
        let setup = Setup::shell()
            .env("ENGINE_NETWORK_HOSTS", "localhost:*")
            .env("ENGINE_HOSTS_ALLOW", "localhost")
            .env("EGRESS_CA_FILE", directory.path().join("cert.pem"))
            .env("EGRESS_BYTES_MAX", "1TiB");
        let mut engine = Engine::start(setup);
        let network = network(ruled, tunnelled);
        let workspace = engine.create(&json!({"sandbox": "workspace", "network": network}));
        let [ruled, tunnelled] = [ruled, tunnelled].map(|port| format!("https://localhost:{port}"));
        let mut scene = Self { engine, workspace, host, directory, ruled, tunnelled };
        // What is made at the first request is made.
        scene.inside(&format!("curl -sS {}/", scene.ruled));
        scene
    }

    /// Runs a shell script in the workspace; returns what it prints.
    #[track_caller]
    pub fn inside(&mut self, script: &str) -> String {
        let body = json!({"cmd": "bash", "args": ["-c", script], "timeout_ms": 120_000});
        let result = self.engine.json("POST", &format!("{}/run", self.workspace), &body);
        assert_eq!(result["exit_code"], 0, "{result}");
        result["stdout"].as_str().unwrap().to_owned()
    }

    /// Runs a shell script outside, in which `curl` trusts the host beside as many as in the workspace.
    #[track_caller]
    pub fn outside(&self, script: &str) -> String {
        let bundle = self.directory.path().join("bundle.pem");
        let ran = Command::new("bash")
            .args(["-c", script])
            .env("CURL_CA_BUNDLE", bundle)
            .output()
            .unwrap();
        assert!(ran.status.success(), "{ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    }
}

/// Rules for one port, of which some add a secret, and the other port listed.
fn network(ruled: &str, tunnelled: &str) -> Value {
    let ruled = format!("localhost:{ruled}");
    json!({
        "allow": [format!("localhost:{tunnelled}")],
        "rules": {&ruled: [
            {"path": "/bytes/*/secret", "headers": {"authorization": "Bearer {{secret.key}}"}},
            {},
        ]},
        "secrets": {"key": {"value": "sk-ant-0123456789abcdef0123456789abcdef", "hosts": [&ruled]}},
    })
}

impl Drop for EgressBench {
    fn drop(&mut self) {
        self.host.kill().unwrap();
        self.host.wait().unwrap();
    }
}
