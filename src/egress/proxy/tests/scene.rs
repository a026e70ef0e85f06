//! A proxy with scripted names, its clients, and hosts for it to reach.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use std::{io, thread};

use crate::egress::hosts::allow_list::AllowList;
use crate::egress::log::EgressLog;
use crate::egress::policy::EgressPolicy;
use crate::egress::proxy::context::ProxyLimits;
use crate::egress::proxy::{EgressProxy, ProxyTerms};
use crate::egress::resolver::Resolve;
use crate::egress::roots::UpstreamRoots;
use crate::egress::trust::SandboxTrust;
use cofferdam_core::egress::EgressRecord;

/// How long a client waits for what has to come.
const AWAITED_WITHIN: Duration = Duration::from_secs(30);

/// Names with their addresses at each lookup; the last stay.
#[derive(Debug, Default)]
pub struct ScriptedNames(Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>);

impl ScriptedNames {
    pub fn set(&self, name: &str, lookups: &[&[&str]]) {
        let addresses = |texts: &&[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        let lookups = lookups.iter().map(addresses).collect();
        self.0.lock().unwrap().insert(name.to_owned(), lookups);
    }
}

impl Resolve for ScriptedNames {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut names = self.0.lock().unwrap();
        let lookups = names.get_mut(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(if lookups.len() > 1 { lookups.remove(0) } else { lookups[0].clone() })
    }
}

pub struct ProxySetup {
    pub policy: EgressPolicy,
    pub limits: ProxyLimits,
}

pub fn list(entries: &[&str]) -> AllowList {
    let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
    AllowList::parse(&entries).unwrap()
}

impl ProxySetup {
    /// Allows `entries`, with 127.0.0.1 permitted.
    pub fn allowing(entries: &[&str]) -> Self {
        let policy = EgressPolicy {
            network: Arc::new(list(entries).into()),
            private_hosts: list(&["127.0.0.1"]),
            own_addresses: Vec::new(),
            bytes_max: 1 << 30,
            step: Some("running_agent".to_owned()),
        };
        Self { policy, limits: ProxyLimits::default() }
    }

    pub fn serve(self) -> ProxyScene {
        self.serve_verifying(UpstreamRoots::default())
    }

    /// The same with hosts that are verified by `roots`.
    pub fn serve_verifying(self, roots: UpstreamRoots) -> ProxyScene {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (names, log) = (Arc::new(ScriptedNames::default()), EgressLog::new(Arc::default()));
        names.set("a.test", &[&["127.0.0.1"]]);
        let resolver: Arc<dyn Resolve> = Arc::clone(&names) as _;
        let (policy, limits) = (self.policy, self.limits);
        let trust = Arc::new(SandboxTrust::new(Arc::clone(&policy.network)));
        let terms = ProxyTerms {
            policy,
            log: Arc::clone(&log),
            trust: Arc::clone(&trust),
            roots,
            keeps_paths: true,
        };
        let proxy = EgressProxy::serve_with(listener, terms, limits, resolver).unwrap();
        ProxyScene { proxy: Some(proxy), address, log, names, trust }
    }
}

pub struct ProxyScene {
    pub proxy: Option<EgressProxy>,
    pub address: SocketAddr,
    pub log: Arc<EgressLog>,
    pub names: Arc<ScriptedNames>,
    pub trust: Arc<SandboxTrust>,
}

impl ProxyScene {
    pub fn connect(&self) -> ProxyClient {
        let socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(AWAITED_WITHIN)).unwrap();
        ProxyClient(socket)
    }

    /// Sends `request` on a connection of its own and returns all that comes back.
    pub fn ask(&self, request: impl AsRef<[u8]>) -> String {
        let mut client = self.connect();
        client.send(request);
        client.rest()
    }

    /// Closes the proxy and returns the records, which then no longer change.
    pub fn records(&mut self) -> Vec<EgressRecord> {
        self.proxy.take().unwrap().close();
        self.log.snapshot()
    }

    /// Waits until the log has `count` records.
    pub fn await_records(&self, count: usize) -> Vec<EgressRecord> {
        wait_until(|| self.log.len() >= count);
        self.log.snapshot()
    }
}

pub fn wait_until(is_done: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_done() {
        assert!(began.elapsed() < AWAITED_WITHIN, "it does not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

pub struct ProxyClient(pub TcpStream);

impl ProxyClient {
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).unwrap();
    }

    /// Reads one head, and the body of the length that it has.
    pub fn answer(&mut self) -> String {
        read_message(&mut self.0)
    }

    /// Reads to the end.
    pub fn rest(&mut self) -> String {
        String::from_utf8_lossy(&self.rest_bytes()).into_owned()
    }

    pub fn rest_bytes(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A reset ends it too.
        if let Err(error) = self.0.read_to_end(&mut bytes) {
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        }
        bytes
    }

    /// Opens a tunnel.
    pub fn tunnel(&mut self, host: &str, port: u16) {
        self.send(format!("CONNECT {host}:{port} HTTP/1.1\r\nhost: {host}:{port}\r\n\r\n"));
        let answer = self.answer();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

pub fn read_message(socket: &mut impl Read) -> String {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        match socket.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return String::from_utf8_lossy(&bytes).into_owned(),
        }
    }
    let head = String::from_utf8_lossy(&bytes).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    socket.read_exact(&mut body).unwrap();
    if head.contains("transfer-encoding: chunked") {
        // Up to the empty line behind the last chunk and its trailers.
        let is_over = |body: &[u8]| {
            let last = body.starts_with(b"0\r\n") || contains(body, b"\r\n0\r\n");
            last && body.ends_with(b"\r\n\r\n")
        };
        while !is_over(&body) && socket.read(&mut byte).is_ok_and(|read| read == 1) {
            body.push(byte[0]);
        }
    }
    String::from_utf8_lossy(&[bytes, body].concat()).into_owned()
}

fn contains(bytes: &[u8], wanted: &[u8]) -> bool {
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

/// A host that answers every request with `answer`. Returns its port and the requests that it gets.
pub fn http_host(answer: &'static str) -> (u16, Receiver<String>) {
    let (sender, requests) = channel();
    let port = host(move |mut socket| {
        let _ = sender.send(read_message(&mut socket));
        let _ = socket.write_all(answer.as_bytes());
        let _ = socket.shutdown(Shutdown::Write);
        let _ = socket.read(&mut [0]);
    });
    (port, requests)
}

/// A host that runs `serve` on each connection. Returns its port.
pub fn host(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let serve = Arc::clone(&serve);
            thread::spawn(move || serve(socket));
        }
    });
    port
}

/// A port at which nothing listens.
pub fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
