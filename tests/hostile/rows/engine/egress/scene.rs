//! Workspaces with a network, and what they may reach.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::Unexercised;
use crate::engine::{EngineClient, SOON, WORKSPACES, Workspace};
use crate::target::EGRESS_ADDRESS;

/// The socket of the proxy, for programs: `ask` sends a request on `proxy` and returns the status.
const PROXY_CLIENT: &str = r"
import socket, sys, time
def connect():
    return socket.create_connection(('127.0.0.1', 3128), 20)
def answer(proxy):
    text = b''
    while b'\r\n\r\n' not in text:
        piece = proxy.recv(1)
        if not piece:
            return 'closed'
        text += piece
    lengths = [line.split(b':')[1] for line in text.lower().split(b'\r\n') if line.startswith(b'content-length:')]
    left = int(lengths[0]) if lengths else 0
    while left:
        left -= len(proxy.recv(left))
    return text.split(b' ')[1].decode()
def ask(proxy, url, head=''):
    host = url.split('/')[2]
    try:
        proxy.sendall(f'GET {url} HTTP/1.1\r\nHost: {host}\r\n{head}\r\n'.encode())
        return answer(proxy)
    except OSError:
        return 'closed'
def tunnel(proxy, to):
    proxy.sendall(f'CONNECT {to} HTTP/1.1\r\nHost: {to}\r\n\r\n'.encode())
    return answer(proxy)
";

/// A server of the host that answers every request with 200, and knows who came and what it heard.
pub struct HostServer {
    address: SocketAddr,
    seen: Arc<SeenByServer>,
    /// Our own connections.
    fences: AtomicUsize,
}

#[derive(Default)]
struct SeenByServer {
    peers: Mutex<Vec<SocketAddr>>,
    open: AtomicUsize,
    heard: Mutex<Vec<u8>>,
}

impl SeenByServer {
    fn peers(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.peers.lock().unwrap()
    }
}

impl HostServer {
    /// Listens on the one address that is not public and may be reached.
    pub fn start() -> Self {
        Self::at(EGRESS_ADDRESS)
    }

    /// Listens on `address`.
    pub fn at(address: Ipv4Addr) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(SeenByServer::default());
        let server = Self { address, seen: Arc::clone(&seen), fences: AtomicUsize::new(0) };
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&seen);
                seen.open.fetch_add(1, Ordering::SeqCst);
                // It may be gone by now.
                let none = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
                seen.peers().push(socket.peer_addr().unwrap_or(none));
                thread::spawn(move || {
                    serve(socket, &seen);
                    seen.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The host and port of [`HostServer::url`].
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// How many connections have come. They are accepted in their order, so ours is the last.
    pub fn came(&self) -> usize {
        let fence = TcpStream::connect(self.address).unwrap();
        let address = fence.local_addr().unwrap();
        let fences = self.fences.fetch_add(1, Ordering::SeqCst) + 1;
        wait_until("our own connection", SOON, || self.seen.peers().contains(&address));
        self.seen.peers().len() - fences
    }

    /// Waits until no connection is open.
    #[track_caller]
    pub fn wait_closed(&self) {
        self.came();
        wait_until("no open connection", SOON, || self.seen.open.load(Ordering::SeqCst) == 0);
    }

    /// All that came over connections, none of which is open any more.
    #[track_caller]
    pub fn heard(&self) -> String {
        self.wait_closed();
        String::from_utf8_lossy(&self.seen.heard.lock().unwrap()).into_owned()
    }
}

/// Answers the requests of one connection, until the other end is gone.
fn serve(mut socket: TcpStream, seen: &SeenByServer) {
    let mut buffer = [0; 4096];
    let mut text = Vec::new();
    while let Ok(count @ 1..) = socket.read(&mut buffer) {
        seen.heard.lock().unwrap().extend_from_slice(&buffer[..count]);
        text.extend_from_slice(&buffer[..count]);
        while let Some(end) = text.windows(4).position(|window| window == b"\r\n\r\n") {
            text.drain(..end + 4);
            if socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_err() {
                return;
            }
        }
    }
}

/// A Python program with `PROXY_CLIENT`, as the body of a request.
pub fn body(program: &str) -> Value {
    let source = format!("{PROXY_CLIENT}{program}");
    json!({"cmd": "python3", "args": ["-c", source], "timeout_ms": 60_000})
}

/// Runs a Python program with `PROXY_CLIENT`, which must succeed.
#[track_caller]
pub fn run(workspace: &Workspace<'_>, program: &str) -> Value {
    let result = workspace.run(&body(program));
    assert_eq!(result["exit_code"], 0, "{result}");
    result
}

/// A workspace that may reach `allow`.
#[track_caller]
pub fn reaching<'client>(client: &'client EngineClient, allow: &[String]) -> Workspace<'client> {
    client.create(&json!({"network": {"allow": allow}}))
}

/// The same, with the sandbox of that kind.
pub fn reaching_in<'client>(
    client: &'client EngineClient,
    sandbox: &str,
    allow: &[String],
) -> Result<Workspace<'client>, Unexercised> {
    let body = json!({"network": {"allow": allow}, "sandbox": sandbox});
    let made = client.post(WORKSPACES, &body);
    if made.status == 503 {
        return Err(Unexercised("needs cgroups for one sandbox of a workspace".to_owned()));
    }
    Ok(client.made(&made))
}

/// The reasons of the records of a result.
pub fn reasons(result: &Value) -> Vec<&str> {
    let records = result["egress"].as_array().unwrap();
    records.iter().map(|record| record["reason"].as_str().unwrap_or("none")).collect()
}

/// The lines that a program has printed.
pub fn printed(result: &Value) -> Vec<&str> {
    result["stdout"].as_str().unwrap().lines().collect()
}
