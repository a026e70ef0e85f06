//! Outputs that are saved as artifacts while programs change them.

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::Unexercised;
use crate::engine::{EngineClient, PeakMemory, SOON, Workspace, promptly};
use crate::target::Target;

/// How often a file that grows, shrinks or is replaced is saved.
const TRIES: usize = 20;
/// How much more memory a collection may take: one file of the most bytes, and its answer.
const GROWTH_MIB: u64 = 24;
/// The numbered lines of a growing file.
const LINE_BYTES: usize = 8;

fn save(workspace: &Workspace<'_>, glob: &str) -> (u16, Value) {
    let spec = json!({"globs": [glob], "save": true});
    let reply = promptly(glob, || workspace.post("/collect-outputs", &spec));
    (reply.status, reply.json())
}

fn artifacts(client: &EngineClient) -> Vec<String> {
    let listed = client.get("/v1/artifacts?app=outputs").json();
    let listed = listed["artifacts"].as_array().unwrap();
    listed.iter().map(|artifact| artifact["name"].as_str().unwrap().to_owned()).collect()
}

fn forget(client: &EngineClient) {
    for name in artifacts(client) {
        client.ask("DELETE", &format!("/v1/artifacts/{name}?app=outputs"), b"");
    }
}

pub fn saved_files(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let client = target.engine()?;
    let workspace = client.create(&json!({"artifact_session": {"app": "outputs"}}));
    let outside = own.sentinel.directory.path().display();
    workspace.sh(&format!(
        "cd out; echo whole >whole; ln whole again; ln -s whole inside; ln -s {outside}/sentinel secret
         ln -s {outside} dir; ln -s /etc etc; ln -s /proc/self/environ env; ln -s loop loop; mkfifo fifo; ln -s fifo l
         mkdir d; ln -s ../../../.. d/up; ln -s ../../metadata.json d/own"
    ));
    for glob in [
        "out/*",
        "out/**",
        "out/secret",
        "out/dir/sentinel",
        "out/dir/*",
        "out/etc/passwd",
        "out/env",
        "out/fifo",
        "out/l",
        "out/loop",
        "out/d/up/etc/passwd",
        "out/d/up/*",
    ] {
        let (status, answer) = save(&workspace, glob);
        assert_eq!(status, 200, "{glob}: {answer}");
        for file in answer["files"].as_array().unwrap() {
            let name = file["name"].as_str().unwrap();
            let is_own = ["out/whole", "out/again", "metadata.json"].contains(&name);
            assert!(is_own, "{glob}: {file}");
        }
    }
    let mut saved = artifacts(&client);
    saved.sort_unstable();
    assert_eq!(saved, ["metadata.json", "out/again", "out/whole"]);
    forget(&client);
    changing_files(target, &client, &workspace);
    own.sentinel.assert_intact();
    Ok(())
}

/// Files that are saved while a program writes them are whole, up to some moment, or not saved at all.
fn changing_files(target: &Target, client: &EngineClient, workspace: &Workspace<'_>) {
    let grow = "import itertools, os
os.chdir('/workspace/out')
print('up', flush=True)
while True:
    with open('log', 'wb') as log:
        for number in range(1, 30001):
            log.write(b'%07d\\n' % number)
            if number % 1000 == 0: log.flush()
    with open('next', 'wb') as log: log.write(b'0000001\\n')
    os.rename('next', 'log')";
    let session = workspace.start(&json!({"cmd": "python3", "args": ["-c", grow]}));
    wait_until("the writer", SOON, || workspace.get(&session).json()["lines"] == 1);
    let peak = target.own().ok().map(PeakMemory::begin);
    let mut versions = 0;
    for _ in 0..TRIES {
        match save(workspace, "out/log") {
            (200, answer) => {
                let Some(file) = answer["files"].get(0) else { continue };
                assert_eq!(
                    (&file["version"], &file["truncated"]),
                    (&json!(versions), &json!(false))
                );
                let kept = client
                    .get(&format!("/v1/artifacts/out/log?app=outputs&version={versions}"))
                    .body;
                assert_eq!(file["size_bytes"], kept.len());
                for (number, line) in (1..).zip(kept.chunks(LINE_BYTES)) {
                    let expected = format!("{number:07}\n");
                    assert!(expected.as_bytes().starts_with(line), "{}", line.escape_ascii());
                }
                versions += 1;
            }
            (409, answer) => assert_eq!(answer["code"], "collect.truncated_save"),
            (status, answer) => panic!("{status} {answer}"),
        }
    }
    assert_eq!(workspace.ask("DELETE", &session, b"").status, 204);
    workspace.sh("rm out/log; truncate -s 1T out/sparse");
    let (status, answer) = save(workspace, "out/sparse");
    assert_eq!((status, &answer["code"]), (409, &json!("collect.truncated_save")));
    let saved = artifacts(client);
    assert!(saved.iter().all(|name| name == "out/log"), "{saved:?}");
    forget(client);
    if let Some(peak) = peak {
        peak.assert_grew_at_most(GROWTH_MIB);
    }
}
