//! Names: what they resolve to from one moment to the next, and in how many ways they can be spelled.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use cofferdam_test_server::recorded::RecordedHost;
use cofferdam_test_server::service::Service;
use serde_json::json;
use tempfile::TempDir;

use super::super::scene::{printed, reasons};
use super::scene::{attack, engine, plain_host, ruled};
use crate::Unexercised;
use crate::engine::EngineClient;
use crate::target::{EGRESS_ADDRESS, Target};

/// How many hosts may find the port of their neighbour taken.
const NEIGHBOURS_MAX: usize = 20;
/// The addresses that `moving.rebind.test` has in turn.
const MOVING: [Ipv4Addr; 2] = [EGRESS_ADDRESS, Ipv4Addr::LOCALHOST];

/// A service that resolves names by a server of this row.
struct NamedScene {
    service: Service,
    /// How often the address of `moving.rebind.test` was asked for.
    lookups: Arc<AtomicUsize>,
    /// Where names are resolved.
    names_at: SocketAddr,
    names: Option<JoinHandle<()>>,
    _directory: TempDir,
}

impl NamedScene {
    fn start(target: &Target) -> Result<Self, Unexercised> {
        engine(target)?;
        // Of this process alone: there may be another one, for another wall.
        let [.., third, fourth] = std::process::id().to_be_bytes();
        let address = Ipv4Addr::new(127, 53, third, fourth);
        let server = UdpSocket::bind((address, 53)).unwrap();
        let names_at = server.local_addr().unwrap();
        let lookups = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&lookups);
        let names = thread::spawn(move || answer_names(&server, &counted));
        let directory = TempDir::new().unwrap();
        let file = directory.path().join("resolv.conf");
        fs::write(&file, format!("nameserver {address}\noptions attempts:1\n")).unwrap();
        let setup = target.own()?.another().with_name_servers(&file);
        let service = setup
            .env("STANDBY_MAX", "0")
            .env("ENGINE_STORE_DIR", directory.path().join("engine"))
            .env("ENGINE_NETWORK_HOSTS", "rebind.test:*,*.rebind.test:*")
            .start();
        Ok(Self { service, lookups, names_at, names: Some(names), _directory: directory })
    }

    fn client(&self) -> EngineClient {
        EngineClient::new(self.service.address, String::new(), None)
    }
}

/// Answers questions for IPv4 addresses, until one comes that is too short.
fn answer_names(server: &UdpSocket, moved: &AtomicUsize) {
    let mut question = [0; 512];
    while let Ok((count @ 17.., peer)) = server.recv_from(&mut question) {
        let asked = &question[..count];
        let Some(end) = asked[12..].iter().position(|byte| *byte == 0).map(|at| at + 12) else {
            continue;
        };
        let name = asked[12..end].to_ascii_lowercase();
        let is_address = asked[end + 1..end + 3] == [0, 1];
        let address = match name.starts_with(b"\x06moving") && is_address {
            true => MOVING[moved.fetch_add(1, Ordering::SeqCst) % MOVING.len()],
            false => EGRESS_ADDRESS,
        };
        let mut answer = [&asked[..2], &[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
        answer.extend_from_slice(&asked[12..end + 5]);
        if is_address {
            answer[7] = 1;
            answer.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
            answer.extend_from_slice(&address.octets());
        }
        // The asker may be gone.
        let _ = server.send_to(&answer, peer);
    }
}

impl Drop for NamedScene {
    fn drop(&mut self) {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        socket.send_to(&[0], self.names_at).unwrap();
        // A panic of the thread has been reported by its hook.
        let _ = self.names.take().map(JoinHandle::join);
    }
}

pub fn that_move(target: &Target) -> Result<(), Unexercised> {
    let scene = NamedScene::start(target)?;
    let client = scene.client();
    // One is at an address that may be reached, the other at the same port of one that may not.
    let pair = || {
        let host = plain_host();
        Some((TcpListener::bind((Ipv4Addr::LOCALHOST, host.port())).ok()?, host))
    };
    let (listener, host) = (0..NEIGHBOURS_MAX).find_map(|_| pair()).unwrap();
    let port = host.port();
    let reached = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&reached);
    thread::spawn(move || {
        for _ in listener.incoming() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let at = format!("moving.rebind.test:{port}");
    let workspace = ruled(&client, &json!({"rules": {&at: [{"plain": true}]}}));
    let program = format!("for _ in range(8):\n    print(code(get('{at}', '/')))\n");
    let result = attack(&workspace, &program);
    let mut expected = Vec::new();
    for record in result["egress"].as_array().unwrap() {
        let is_allowed = record["address"] == EGRESS_ADDRESS.to_string();
        expected.push(if is_allowed { "200" } else { "403 private_address" });
    }
    // What was judged was connected to: one question for each request, and none behind the judgement.
    assert_eq!(printed(&result), expected, "{result}");
    assert_eq!(expected, ["200", "403 private_address"].repeat(4), "{result}");
    assert_eq!(scene.lookups.load(Ordering::SeqCst), 8, "{result}");
    assert_eq!(reached.load(Ordering::SeqCst), 0, "the address was reached: {result}");
    assert_eq!(host.requests(), ["GET /"; 4], "{result}");
    Ok(())
}

const SPELLED: &str = r"
for name in ['a.rebind.test', 'A.Rebind.TEST', 'a.rebind.test.', 'a.b.rebind.test']:
    print('own', code(get(f'{name}:{port}', '/')))
for name in [
    'rebind.test', '.rebind.test', 'a.rebind.test..', 'a..rebind.test', 'xrebind.test', 'a.rebind.test.other.test',
    'rebind.test.other.test', 'a.rebind.tes', 'a.rebind.test%2e', 'a%2erebind.test', '*.rebind.test', '%61.rebind.test',
    'a.r\u0435bind.test', 'a.rebind\u3002test', 'a\uff0erebind.test', '\uff41.rebind.test', 'a.rebind.te\u017ft',
    'a.xn--rbind-1of.test', 'a.rebind.test\0', 'a.rebind.test:80', 'a.rebind.test@x.test', 'x.test\\.rebind.test',
    'x.test#.rebind.test', 'x.test?.rebind.test', 'x.test/.rebind.test', 'x.test;.rebind.test', '[a.rebind.test]', 'a_.other.test',
]:
    request = f'GET http://{name}:{port}/ HTTP/1.1\r\nHost: {name}:{port}\r\nConnection: close\r\n\r\n'
    print('other', code(send(request.encode())))
    request = f'CONNECT {name}:{port} HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n'
    print('other', code(send(request.encode())))
";

pub fn in_other_spellings(target: &Target) -> Result<(), Unexercised> {
    let scene = NamedScene::start(target)?;
    let client = scene.client();
    let host: RecordedHost = plain_host();
    let port = host.port();
    let key = format!("*.rebind.test:{port}");
    let workspace = ruled(&client, &json!({"rules": {key: [{"plain": true}]}}));
    let result = attack(&workspace, &format!("port = {port}\n{SPELLED}"));
    let (own, other) =
        printed(&result).into_iter().partition::<Vec<_>, _>(|l| l.starts_with("own"));
    assert_eq!(own, ["own 200"; 4], "{result}");
    assert_eq!(other.len(), 56, "{result}");
    let is_refused = |line: &&str| line.starts_with("other 40") || *line == "other closed";
    assert!(other.iter().all(is_refused), "{result}");
    let known = ["none", "not_listed", "bad_request", "literal", "no_rule"];
    assert!(reasons(&result).iter().all(|reason| known.contains(reason)), "{result}");
    let heard = host.heard();
    // The final dot and the case of letters are those of no other name.
    assert_eq!(heard.matches(&format!("host: a.rebind.test:{port}\r\n")).count(), 3, "{heard}");
    assert_eq!(host.requests(), ["GET /"; 4], "{result}");
    Ok(())
}
