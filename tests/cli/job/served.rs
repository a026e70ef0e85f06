//! `cofferdam job --server` with a real `cofferdam serve`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use serde_json::{Value, json};

use super::support::JobDirectory;
use crate::running_server::RunningServer;
use crate::support::{Call, cofferdam, ends_within, is_running, langs, pid_of, until_running};

/// A service with jobs in the store of `place`, which requires a token.
struct Served {
    server: RunningServer,
    token: std::path::PathBuf,
}

impl Served {
    fn new(place: &JobDirectory) -> Self {
        Self::with(place, |call| call)
    }

    /// A service whose call is extended by `more`.
    fn with(place: &JobDirectory, more: impl FnOnce(Call) -> Call) -> Self {
        let token = place.path().join("token");
        fs::write(&token, "secret-token-of-the-test\n").unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let call = cofferdam("serve --addr 127.0.0.1:0 --langs").arg(langs());
        let call = call.arg("--store-dir").arg(place.store());
        let call = more(call).env("AUTH_TOKEN", "secret-token-of-the-test");
        Self { server: RunningServer::start(call), token }
    }

    fn job(&self, words: &str) -> Call {
        let call = cofferdam("job").words(words).arg("--server").arg(&self.server.url);
        call.arg("--token-file").arg(&self.token)
    }
}

#[test]
fn a_service_uses_the_firecracker_configuration_of_its_environment() {
    let place = JobDirectory::new(&[]);
    let gone = place.path().join("no-firecracker");
    let work = place.path().join("machines");
    let served = Served::with(&place, |call| {
        call.env("FIRECRACKER_KERNEL", "/dev/null")
            .env("FIRECRACKER_ROOT_IMAGE", "/dev/null")
            .env("FIRECRACKER_ROOT_DIRECTORY", "/")
            .env("FIRECRACKER_BIN", gone.to_str().unwrap())
            .env("FIRECRACKER_WORK_DIR", work.to_str().unwrap())
    });
    let mut request = place.request(&["true"]);
    request["backend"] = json!({"kind": "firecracker"});
    let result = served.job("run -").fed(request.to_string()).run().exits(5).quietly().json();
    let message = result["error"]["message"].as_str().unwrap();
    assert!(message.contains(gone.to_str().unwrap()), "{message}");
    assert!(work.is_dir());
}

#[test]
fn a_job_of_a_service_is_reported_like_a_local_job() {
    let place = JobDirectory::new(&[]);
    let served = Served::new(&place);
    let mut request = place.script("mkdir out; echo abc | tee out/a; sleep 0.5; echo late; exit 3");
    request["job_id"] = json!("job_1");
    request["policy"]["artifacts"] = json!({"include": ["out/**"]});
    let done = served.job("run -").fed(request.to_string()).run().exits(1).quietly();
    let result = done.json();
    assert_eq!((&result["status"], &result["exit_code"]), (&json!("failed"), &json!(3)));
    assert_eq!(result["stdout"]["text"], "abc\nlate\n");
    // The same from the service and from its store.
    for there in [served.job("result job_1"), place.job("result job_1")] {
        there.run().exits(0).quietly().prints(&done.stdout());
    }
    let line = place.job("status job_1").run().exits(0).stdout();
    served.job("status job_1").run().exits(0).quietly().prints(&line);
    let list = place.job("list").run().exits(0).stdout();
    served.job("list --limit 7").run().exits(0).quietly().prints(&list);
    let artifacts = place.job("artifacts job_1").run().exits(0).stdout();
    served.job("artifacts job_1").run().exits(0).quietly().prints(&artifacts);
    served.job("artifacts job_1 --get out/a").run().exits(0).quietly().prints("abc\n");
    let error = served.job("cancel job_1").run().exits(1).prints("").error();
    assert_eq!(error["code"], "job.conflict");
    let again = served.job("run -").fed(request.to_string()).run().exits(1).prints("");
    assert_eq!(again.error()["code"], "job.conflict");
    let denied = place.request(&["true"]);
    let call = cofferdam("job run - --server").arg(&served.server.url).fed(denied.to_string());
    assert_eq!(call.run().exits(1).prints("").error()["code"], "auth.required");
}

#[test]
fn a_signal_cancels_the_job_of_the_service_and_prints_its_output() {
    let place = JobDirectory::new(&[]);
    let served = Served::new(&place);
    let file = place.path().join("request.json");
    fs::write(&file, place.script("echo early; sleep 600.35").to_string()).unwrap();
    let mut child = served.job("run").arg(&file).spawn();
    until_running("600.35", &mut child);
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    assert_eq!(ends_within(&mut child, Duration::from_secs(3)).code(), Some(130));
    assert!(!is_running("600.35"));
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(result["status"], "canceled", "{result}");
    assert_eq!(result["stdout"]["text"], "early\n");
}
