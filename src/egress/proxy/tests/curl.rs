//! curl through the proxy, to a server with TLS.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::scene::ProxySetup;
use crate::egress::environment::proxy_environment;
use cofferdam_core::egress::{EgressDecision, EgressReason};

/// Serves `hello` over TLS and says at which port.
const SERVER: &str = "
import http.server, ssl, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'hello')
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Answer)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(sys.argv[1], sys.argv[2])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
";

struct TlsServer(Child);

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(directory: &Path) -> (TlsServer, u16) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-keyout", "key.pem", "-out", "cert.pem", "-days", "2", "-subj", "/CN=a.test"])
        .args(["-addext", "subjectAltName=DNS:a.test,DNS:b.test,IP:127.0.0.1"])
        .current_dir(directory)
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    let mut server = Command::new("python3")
        .args(["-c", SERVER, "cert.pem", "key.pem"])
        .current_dir(directory)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (TlsServer(server), line.trim().parse().unwrap())
}

#[test]
fn curl_reaches_listed_hosts_with_the_variables_of_the_environment() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, port) = serve(directory.path());
    let literal = format!("127.0.0.1:{port}");
    let mut scene = ProxySetup::allowing(&["a.test:*", &literal]).serve();
    let curl = |url: &str, more: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "30", "--cacert", "cert.pem", url])
            .args(more)
            .current_dir(directory.path())
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .envs(proxy_environment(scene.address.port(), true))
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (text(&output.stdout), text(&output.stderr))
    };
    let of = |host: &str| format!("https://{host}:{port}/");
    for host in ["a.test", "127.0.0.1"] {
        let (out, err) = curl(&of(host), &[]);
        assert_eq!(out, "hello", "{err}");
    }
    assert!(curl(&of("b.test"), &[]).1.contains("403"));
    // A program that asks for one host and greets another.
    let connect_to = format!("b.test:{port}:a.test:{port}");
    let (out, err) = curl(&of("b.test"), &["--connect-to", &connect_to]);
    assert!(out.is_empty() && err.contains("denied"), "{out} {err}");
    let records = scene.records();
    let ends: Vec<_> = records.iter().map(|record| (record.decision, record.reason)).collect();
    assert_eq!(
        ends,
        [
            (EgressDecision::Allowed, None),
            (EgressDecision::Allowed, None),
            (EgressDecision::Denied, Some(EgressReason::NotListed)),
            (EgressDecision::Denied, Some(EgressReason::Sni)),
        ]
    );
    assert!(records[0].bytes_sent > 100 && records[0].bytes_received > 100, "{records:?}");
}
