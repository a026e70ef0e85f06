//! A service with Cases, and Cases below its root.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use cofferdam_test_server::client::{Answer, request};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use cofferdam_test_support::host;
use serde_json::{Value, json};
use tempfile::TempDir;

/// The tokens `one` and `two`, as headers.
pub const ONE: &str = "authorization: Bearer first-token-0123456789\r\n";
pub const TWO: &str = "authorization: Bearer second-token-0123456789\r\n";
/// How long a run may take on a loaded machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A task: `add` subtracts, and `mine` mends it.
pub const CASE: &str = "id: fix-add
task: {prompt: Mend add.}
source: {path: src}
harnesses: {mine: {kind: command, argv: [sed, -i, s/a - b/a + b/, add.py]}}
matrix: {harnesses: [nop, mine], models: [m]}
graders:
- type: command
  cmd: python3 -c 'import add; assert add.add(1, 2) == 3'
";
const ADD: &str = "def add(a, b):\n    return a - b\n";

/// The directories of a service.
pub struct Scene {
    place: TempDir,
}

impl Scene {
    /// None where sandboxes are impossible.
    pub fn new() -> Option<Self> {
        host()?;
        let place = tempfile::tempdir().unwrap();
        fs::create_dir(place.path().join("cases")).unwrap();
        fs::write(
            place.path().join("tokens"),
            "one first-token-0123456789\ntwo second-token-0123456789\n",
        )
        .unwrap();
        Some(Self { place })
    }

    /// What the service is started with.
    pub fn setup(&self) -> Setup {
        Setup::shell()
            .arg("--store-dir")
            .arg(self.store())
            .env("AUTH_TOKENS_FILE", self.place.path().join("tokens"))
            .env("CASES_ROOTS", self.root())
            .env("STANDBY_MAX", "0")
            .env("EVAL", "off")
            .env("ENGINE", "off")
    }

    pub fn start(&self) -> Service {
        self.setup().start()
    }

    /// The directory below which Cases may be.
    pub fn root(&self) -> PathBuf {
        self.place.path().join("cases")
    }

    pub fn store(&self) -> PathBuf {
        self.place.path().join("store")
    }

    /// A path beside root and store.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Writes the Case `name`; returns a request for it.
    pub fn write_case(&self, name: &str, yaml: &str) -> Value {
        let directory = self.root().join(name);
        fs::create_dir_all(directory.join("src")).unwrap();
        fs::write(directory.join("src/add.py"), ADD).unwrap();
        fs::write(directory.join("case.yaml"), yaml).unwrap();
        json!({ "path": directory })
    }

    /// The directory of a run.
    pub fn run_dir(&self, id: &str) -> PathBuf {
        self.store().join("cases").join(id)
    }

    /// How many runs the store has, unfinished ones too.
    pub fn runs(&self) -> usize {
        fs::read_dir(self.store().join("cases")).map_or(0, Iterator::count)
    }

    /// Waits until the files of Cells are gone, and their mounts.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let store = self.store();
        let sessions = store.join("case-sessions");
        wait_until("no files of Cells", PATIENCE, || {
            // Files of the service itself are in one directory for each that lives.
            let services = fs::read_dir(&sessions).into_iter().flatten().flatten();
            let left = services.flat_map(|one| fs::read_dir(one.path()).into_iter().flatten());
            left.flatten()
                .all(|one| fs::read_dir(one.path()).is_ok_and(|mut all| all.next().is_none()))
        });
    }
}

/// The archive of `entries`, as `archive.py` has them.
pub fn archive(kind: &str, entries: &Value) -> Vec<u8> {
    let script = include_str!("archive.py");
    let mut child = Command::new("python3")
        .args(["-c", script, kind])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(entries.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{entries}");
    output.stdout
}

/// The archive of the Case with `yaml`, below the directory `top`.
pub fn archive_of_case(kind: &str, top: &str, yaml: &str) -> Vec<u8> {
    let entries = json!([[format!("{top}case.yaml"), yaml], [format!("{top}src/add.py"), ADD]]);
    archive(kind, &entries)
}

/// Posts `body` for the token of `headers`.
pub fn post(service: &Service, target: &str, headers: &str, body: impl AsRef<[u8]>) -> Answer {
    let body = body.as_ref();
    let headers = format!("{headers}content-length: {}\r\n", body.len());
    service.ask([request("POST", target, &headers).as_bytes(), body].concat())
}

/// Submits `body`; returns the id of the run.
#[track_caller]
pub fn submit(service: &Service, target: &str, body: impl AsRef<[u8]>) -> String {
    let answer = post(service, target, ONE, body);
    assert_eq!(answer.status, 202, "{answer:?}");
    let submitted: Value = serde_json::from_str(&answer.body).unwrap();
    assert_eq!(submitted["status"], "queued");
    let id = submitted["run_id"].as_str().unwrap().to_owned();
    assert_eq!(answer.header("location"), Some(format!("/v1/cases/{id}").as_str()));
    id
}

/// What is at `target` for the token `one`.
#[track_caller]
pub fn get(service: &Service, target: &str) -> Answer {
    let answer = service.ask(request("GET", target, ONE));
    assert_eq!(answer.status, 200, "{target}: {answer:?}");
    answer
}

#[track_caller]
pub fn get_json(service: &Service, target: &str) -> Value {
    serde_json::from_str(&get(service, target).body).unwrap()
}

/// Follows a run to its end; returns its events as text.
#[track_caller]
pub fn follow(service: &Service, id: &str, headers: &str) -> String {
    let mut client = service.connect();
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send(format!("GET /v1/cases/{id}/events HTTP/1.0\r\n{ONE}{headers}\r\n"));
    assert_eq!(client.head().status, 200);
    client.rest_text()
}

/// Waits until `is_so` holds for the run.
#[track_caller]
pub fn wait_for_run(
    service: &Service,
    id: &str,
    what: &str,
    is_so: impl Fn(&Value) -> bool,
) -> Value {
    let mut view = Value::Null;
    wait_until(what, PATIENCE, || {
        view = get_json(service, &format!("/v1/cases/{id}"));
        is_so(&view)
    });
    view
}

/// The error of an answer, checked for its status and code.
#[track_caller]
pub fn error(answer: &Answer, status: u16, code: &str) -> Value {
    let error: Value = serde_json::from_str(&answer.body).unwrap_or_default();
    assert_eq!((answer.status, &error["code"]), (status, &json!(code)), "{answer:?}");
    error
}
