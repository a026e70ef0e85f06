//! The requests of the corpus with which our own HTTP front is attacked, sent to the proxy: nothing passes that
//! was not judged.

use std::net::Ipv4Addr;

use cofferdam_fixtures::smuggling::SmugglingDoor;
use cofferdam_test_server::exchange::try_ask;
use cofferdam_test_server::recorded::{RecordedHost, TestAuthority};
use cofferdam_test_server::service::{Service, Setup};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::is_privileged;

/// An address that only these hosts are at.
const HOSTS_ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 7);
const BODY: &str = "a body";

/// Sends each text of `requests.json` to the proxy on a connection of its own, those of `tls` within a tunnel, and
/// prints what comes back.
const SENDER: &str = r"
import json, socket, ssl
asked = json.load(open('/workspace/requests.json'))
host = asked['host']
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
for door in ['plain', 'tls']:
    for request in asked[door]:
        stream = socket.create_connection(('127.0.0.1', 3128), 20)
        if door == 'tls':
            stream.sendall(f'CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n'.encode())
            while not stream.recv(4096).endswith(b'\r\n\r\n'):
                pass
            stream = context.wrap_socket(stream)
        text = b''
        try:
            stream.sendall(request.encode())
            while piece := stream.recv(65536):
                text += piece
        except TimeoutError:
            text = b'timeout'
        except OSError:
            pass
        print(json.dumps(text.decode('latin1')))
";

/// A service, and hosts that record what they hear: one without TLS, one with it.
struct SmugglingScene {
    service: Service,
    hosts: [RecordedHost; 2],
    _directory: TempDir,
}

/// The same for both hosts.
struct BothDoors {
    plain: Vec<String>,
    tls: Vec<String>,
}

impl SmugglingScene {
    /// Starts one; none where workspaces are impossible, which `REQUIRE_PRIVILEGED=1` forbids.
    fn start() -> Option<Self> {
        if !is_privileged() {
            return None;
        }
        let (directory, certificates) = (TempDir::new().unwrap(), TestAuthority::default());
        let service = Setup::shell()
            .env("JOBS", "off")
            .env("ENGINE_STORE_DIR", directory.path())
            .env("ENGINE_NETWORK_HOSTS", format!("{HOSTS_ADDRESS}:*"))
            .env("ENGINE_HOSTS_ALLOW", HOSTS_ADDRESS.to_string())
            .env("EGRESS_CA_FILE", certificates.file())
            .start();
        let tls = certificates.config(&HOSTS_ADDRESS.to_string(), &["http/1.1"]);
        let hosts = [None, Some(tls)].map(|tls| {
            RecordedHost::answering(HOSTS_ADDRESS, tls, |_| {
                b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()
            })
        });
        Some(Self { service, hosts, _directory: directory })
    }

    fn ask(&self, method: &str, target: &str, body: &str) -> Value {
        let reply = try_ask(self.service.address, method, target, "", body.as_bytes()).unwrap();
        assert!(reply.status < 300, "{method} {target}: {}", reply.json());
        reply.json()
    }

    /// The requests that `make` makes for each host, with one for `/smuggled` behind it.
    fn requests(&self, make: impl Fn(SmugglingDoor<'_>) -> Vec<String>) -> BothDoors {
        let [plain, tls] = self.hosts.each_ref().map(RecordedHost::authority);
        let with = |base: &str, host: &str| -> Vec<String> {
            let target = format!("{base}/allowed");
            let made = make(SmugglingDoor { target: &target, host, body: BODY });
            let behind = format!("GET {base}/smuggled HTTP/1.1\r\nhost: {host}\r\n\r\n");
            made.iter().map(|request| format!("{request}{behind}")).collect()
        };
        BothDoors { plain: with(&format!("http://{plain}"), &plain), tls: with("", &tls) }
    }

    /// Sends them from a workspace whose rules allow `paths`. Returns the answers and the records.
    fn send(&self, paths: &[&str], requests: &BothDoors) -> (Vec<String>, Vec<Value>) {
        let [plain, tls] = self.hosts.each_ref().map(RecordedHost::authority);
        let rules = |is_plain: bool| -> Vec<Value> {
            paths.iter().map(|path| json!({"plain": is_plain, "path": path})).collect()
        };
        let network = json!({"rules": {&plain: rules(true), &tls: rules(false)}});
        let made = self.ask("POST", "/v1/workspaces", &json!({"network": network}).to_string());
        let workspace = format!("/v1/workspaces/{}", made["workspace_id"].as_str().unwrap());
        let asked = json!({"plain": requests.plain, "tls": requests.tls, "host": tls});
        self.ask("PUT", &format!("{workspace}/files?path=requests.json"), &asked.to_string());
        let run = json!({"cmd": "python3", "args": ["-c", SENDER], "timeout_ms": 60_000});
        let result = self.ask("POST", &format!("{workspace}/run"), &run.to_string());
        assert_eq!(result["exit_code"], 0, "{result}");
        let answers = result["stdout"].as_str().unwrap().lines();
        let answers = answers.map(|line| serde_json::from_str(line).unwrap()).collect();
        (answers, result["egress"].as_array().unwrap().clone())
    }
}

#[test]
fn nothing_of_the_smuggling_corpus_passes_that_was_not_judged() {
    let Some(scene) = SmugglingScene::start() else { return };
    let requests = scene.requests(|door| door.all());
    let sent = [&requests.plain[..], &requests.tls[..]].concat();
    assert!(requests.plain.len() >= 109, "{} requests", requests.plain.len());
    let (answers, records) = scene.send(&["/allowed"], &requests);
    for (answer, request) in answers.iter().zip(&sent) {
        let is_refused = answer.is_empty()
            || answer.starts_with("HTTP/1.1 400 ")
            || answer.starts_with("HTTP/1.0 400 ");
        assert!(is_refused, "{request:?} was answered {answer:?}");
        assert!(answer.matches("HTTP/1.").count() <= 1, "{request:?}: {answer:?}");
    }
    // What follows a doubtful request is no request, so each connection has one record.
    assert_eq!((answers.len(), records.len()), (sent.len(), sent.len()));
    for record in &records {
        let verdict = (record["decision"].as_str(), record["reason"].as_str());
        assert_eq!(verdict, (Some("denied"), Some("bad_request")), "{record}");
    }
    for host in &scene.hosts {
        // Bodies stream: what is malformed in one comes behind a head that was judged.
        assert!(host.requests().iter().all(|line| line == "POST /allowed"), "{}", host.heard());
        assert!(!host.heard().contains("smuggled"), "{}", host.heard());
    }
}

#[test]
fn the_recorder_of_the_smuggling_corpus_sees_what_passes() {
    let Some(scene) = SmugglingScene::start() else { return };
    let plainly = |door: SmugglingDoor<'_>| {
        let SmugglingDoor { target, host, body } = door;
        let head = format!("POST {target} HTTP/1.1\r\nhost: {host}\r\n");
        let chunked =
            format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
        vec![
            format!("{head}content-length: {}\r\n\r\n{body}", body.len()),
            format!("{head}{chunked}"),
        ]
    };
    // The connection ends with a request that no rule allows.
    let mut requests = scene.requests(plainly);
    let [plain, tls] = scene.hosts.each_ref().map(RecordedHost::authority);
    let ends = [format!("http://{plain}/end"), "/end".to_owned()];
    for (list, (end, host)) in
        [&mut requests.plain, &mut requests.tls].into_iter().zip(ends.iter().zip([plain, tls]))
    {
        list.iter_mut().for_each(|request| {
            request.push_str(&format!("GET {end} HTTP/1.1\r\nhost: {host}\r\n\r\n"));
        });
    }
    let statuses = |answers: &[String]| -> Vec<usize> {
        answers.iter().map(|answer| answer.matches("HTTP/1.1 200").count()).collect()
    };
    let (answers, records) = scene.send(&["/allowed"], &requests);
    assert_eq!((statuses(&answers), records.len()), (vec![1; 4], 8), "{answers:?}");
    for host in &scene.hosts {
        assert_eq!(host.requests(), ["POST /allowed"; 2]);
    }
    let (answers, records) = scene.send(&["/allowed", "/smuggled"], &requests);
    assert_eq!((statuses(&answers), records.len()), (vec![2; 4], 12), "{answers:?}");
    for host in &scene.hosts {
        let seen = host.requests();
        assert_eq!(seen.iter().filter(|line| *line == "GET /smuggled").count(), 2, "{seen:?}");
        assert_eq!(seen.len(), 6, "{seen:?}");
    }
}
