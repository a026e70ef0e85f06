//! Hosts that proxies reach: each records all bytes that come, and answers by a script.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use tempfile::TempDir;

use crate::service::wait_until;

/// How long a connection may take to end.
const CLOSED_WITHIN: Duration = Duration::from_secs(30);

/// What ends the first line of a request.
const FIRST_LINE_END: &str = " HTTP/1.1\r\n";

/// An authority that hosts prove themselves by.
pub struct TestAuthority {
    directory: TempDir,
    params: CertificateParams,
    key: KeyPair,
}

impl Default for TestAuthority {
    fn default() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let directory = TempDir::new().unwrap();
        let certificates = Self { directory, params, key };
        let root = certificates.params.self_signed(&certificates.key).unwrap();
        let encoded = STANDARD.encode(root.der());
        let pem = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
        fs::write(certificates.file(), pem).unwrap();
        certificates
    }
}

impl std::fmt::Debug for TestAuthority {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TestAuthority").finish_non_exhaustive()
    }
}

impl TestAuthority {
    /// The certificate of the authority, for `EGRESS_CA_FILE`.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }

    /// How a host of that name or address speaks TLS, with these protocols over it.
    pub fn config(&self, name: &str, protocols: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let issuer = Issuer::from_params(&self.params, &self.key);
        let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], key)
            .unwrap();
        config.alpn_protocols =
            protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        Arc::new(config)
    }
}

#[derive(Debug)]
struct RecordedConnection {
    peer: Option<SocketAddr>,
    heard: Vec<u8>,
    is_open: bool,
}

type Records = Arc<Mutex<Vec<RecordedConnection>>>;

/// A host that records all that it hears.
#[derive(Debug)]
pub struct RecordedHost {
    address: SocketAddr,
    records: Records,
}

impl RecordedHost {
    /// Answers each request over HTTP/1 with what `answer` makes of its head.
    pub fn answering(
        address: impl Into<IpAddr>,
        tls: Option<Arc<ServerConfig>>,
        answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static,
    ) -> Self {
        Self::serving(address, tls, move |stream| {
            while let Some(head) = stream.read_head() {
                stream.read_body(&head);
                if !stream.send(&answer(&head)) {
                    return;
                }
            }
        })
    }

    /// Runs `serve` on each connection.
    pub fn serving(
        address: impl Into<IpAddr>,
        tls: Option<Arc<ServerConfig>>,
        serve: impl Fn(&mut HostSideStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((address.into(), 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let records = Records::default();
        let host = Self { address, records: Arc::clone(&records) };
        let serve = Arc::new(serve);
        thread::spawn(move || {
            for socket in listener.incoming().map_while(Result::ok) {
                let number = begin(&records, &socket);
                let (records, tls, serve) = (Arc::clone(&records), tls.clone(), Arc::clone(&serve));
                thread::spawn(move || {
                    let inner = match tls {
                        Some(config) => ServerConnection::new(config)
                            .map(|session| {
                                SocketOrTls::Tls(Box::new(StreamOwned::new(session, socket)))
                            })
                            .unwrap(),
                        None => SocketOrTls::Socket(socket),
                    };
                    let mut stream =
                        HostSideStream { inner, number, records: Arc::clone(&records) };
                    serve(&mut stream);
                    stream.end();
                    drop(stream);
                    with(&records, |all| all[number].is_open = false);
                });
            }
        });
        host
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its address and port.
    pub fn authority(&self) -> String {
        self.address.to_string()
    }

    /// All that has come so far, connection by connection.
    pub fn heard_so_far(&self) -> String {
        with(&self.records, |all| {
            let heard = all.iter().map(|one| String::from_utf8_lossy(&one.heard));
            heard.collect::<Vec<_>>().join("\n")
        })
    }

    /// All that came over connections, none of which is open any more.
    #[track_caller]
    pub fn heard(&self) -> String {
        // They are accepted in their order, so ours is the last.
        let fence = TcpStream::connect(self.address).unwrap();
        let own = fence.local_addr().unwrap();
        let has_come = || with(&self.records, |all| all.iter().any(|one| one.peer == Some(own)));
        wait_until("our own connection", CLOSED_WITHIN, has_come);
        drop(fence);
        wait_until("no open connection", CLOSED_WITHIN, || {
            with(&self.records, |all| all.iter().all(|one| !one.is_open))
        });
        self.heard_so_far()
    }

    /// The method and the target of each request that has come. What looks like one in a body is among them.
    #[track_caller]
    pub fn requests(&self) -> Vec<String> {
        let heard = self.heard();
        let (heads, _) = heard.rsplit_once(FIRST_LINE_END).unwrap_or_default();
        heads.split(FIRST_LINE_END).filter(|_| !heads.is_empty()).map(first_line).collect()
    }
}

/// The method and target at the end of `text`, behind whatever came before.
fn first_line(text: &str) -> String {
    let (before, target) = text.rsplit_once(' ').unwrap_or(("", text));
    let is_of_method = |character: char| character.is_ascii_uppercase();
    let method = before.rsplit(|character| !is_of_method(character)).next().unwrap_or_default();
    format!("{method} {target}")
}

fn begin(records: &Records, socket: &TcpStream) -> usize {
    let connection = RecordedConnection {
        // It may be gone by now.
        peer: socket.peer_addr().ok(),
        heard: Vec::new(),
        is_open: true,
    };
    with(records, |all| {
        all.push(connection);
        all.len() - 1
    })
}

fn with<T>(records: &Records, work: impl FnOnce(&mut Vec<RecordedConnection>) -> T) -> T {
    work(&mut records.lock().unwrap_or_else(PoisonError::into_inner))
}

/// One connection to a host, with TLS or without.
#[derive(Debug)]
enum SocketOrTls {
    Socket(TcpStream),
    Tls(Box<StreamOwned<ServerConnection, TcpStream>>),
}

/// One connection to a host that records what it hears.
#[derive(Debug)]
pub struct HostSideStream {
    inner: SocketOrTls,
    number: usize,
    records: Records,
}

impl HostSideStream {
    /// Reads a head; none if the connection ends before.
    pub fn read_head(&mut self) -> Option<String> {
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            match self.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return None,
            }
        }
        Some(String::from_utf8_lossy(&head).into_owned())
    }

    /// Reads the body behind `head`, or what comes of it.
    pub fn read_body(&mut self, head: &str) {
        let head = head.to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut left: usize = length.map_or(0, |length| length.trim().parse().unwrap_or(0));
        let mut piece = [0; 4096];
        while left > 0 {
            let most = left.min(piece.len());
            match self.read(&mut piece[..most]) {
                Ok(count @ 1..) => left -= count,
                _ => return,
            }
        }
        if !head.contains("transfer-encoding: chunked") {
            return;
        }
        let (mut body, mut byte) = (Vec::new(), [0]);
        // Up to the empty line behind the last chunk.
        while !(body.ends_with(b"\r\n\r\n") && (body == b"0\r\n\r\n" || is_last_chunk(&body))) {
            match self.read(&mut byte) {
                Ok(1) => body.push(byte[0]),
                _ => return,
            }
        }
    }

    /// Sends `bytes`; false if the other side has gone.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        let sent = match &mut self.inner {
            SocketOrTls::Socket(socket) => socket.write_all(bytes),
            SocketOrTls::Tls(tls) => tls.write_all(bytes).and_then(|()| tls.flush()),
        };
        sent.is_ok()
    }

    /// Waits until the other side ends the connection.
    pub fn wait_end(&mut self) {
        let mut piece = [0; 4096];
        while let Ok(1..) = self.read(&mut piece) {}
    }

    /// Ends our side.
    fn end(&mut self) {
        // The other side may have gone.
        let _ = match &mut self.inner {
            SocketOrTls::Socket(socket) => socket.shutdown(Shutdown::Write),
            SocketOrTls::Tls(tls) => {
                tls.conn.send_close_notify();
                tls.flush().and_then(|()| tls.sock.shutdown(Shutdown::Write))
            }
        };
    }
}

fn is_last_chunk(body: &[u8]) -> bool {
    body.windows(5).rposition(|window| window == b"\r\n0\r\n").is_some()
}

impl Read for HostSideStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = match &mut self.inner {
            SocketOrTls::Socket(socket) => socket.read(buffer),
            SocketOrTls::Tls(tls) => tls.read(buffer),
        }?;
        with(&self.records, |all| all[self.number].heard.extend_from_slice(&buffer[..count]));
        Ok(count)
    }
}
