//! Programs that share a sandbox, against their neighbours and the limits of all.

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::init::{MEMORY_MIB, shared};
use crate::Unexercised;
use crate::engine::{SOON, Workspace, promptly};
use crate::marker::Marker;
use crate::target::Target;

/// A process that ends by no signal but SIGKILL.
const DEAF: &str = "trap '' TERM INT HUP QUIT; while :; do sleep 1; done";
/// Each process forks again whenever it may.
const BOMB: &str = "
import os, time
print('up', flush=True)
while True:
    try: os.fork()
    except OSError: time.sleep(0.01)
";
/// The processes of all programs of a workspace with a bomb.
const PIDS_MAX: u64 = 40;

/// Takes memory, then fills the rest of the limit with a file.
const FILL: &str = "
kept = b'x' * (16 << 20)
with open('/workspace/full', 'ab', 0) as file:
    for _ in range(128): file.write(bytes(1 << 20))
";
/// Takes more memory than all programs may have, in a child.
const HOG: &str = "
setsid sh -c 'while :; do sleep 1000; done' $0 &
setsid sh -c 'sh -c \"while :; do sleep 1000; done\" $0 & exit' $0
python3 -c 'x = b\"x\" * (300 << 20)'
exec sleep 1000
";

/// Starts processes in each way out of a session or process group, then goes on as `end` says.
fn scatter(word: &str, end: &str) -> Value {
    let script = format!(
        "setsid sh -c 'sh -c \"$DEAF\" {word}1 & exit' {word} &
         (setsid sh -c \"$DEAF\" {word}2 &)
         setsid sh -c 'setsid sh -c \"$DEAF\" {word}3 & kill -STOP $$' {word} &
         sh -c 'exec >/dev/null 2>&1 </dev/null; exec sh -c \"$DEAF\" {word}4' {word} &
         echo up; {end}"
    );
    json!({"cmd": "sh", "args": ["-c", script, word], "env": {"DEAF": DEAF}})
}

fn is_running(workspace: &Workspace<'_>, session: &str) -> bool {
    workspace.get(session).json()["status"] == "running"
}

pub fn escapes(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let workspace = shared(&client)?;
    let neighbour = workspace.start_sh("echo up; exec sleep 1000", "neighbour");
    for how in ["kill", "kill what is left", "time out"] {
        let marker = Marker::new();
        let stays = "exec sh -c \"$DEAF\" stays";
        let end = if how == "kill what is left" { "exit 0" } else { stays };
        let mut body = scatter(marker.word(), end);
        if how == "time out" {
            body["timeout_ms"] = json!(3000);
        }
        let session = workspace.start(&body);
        if how != "time out" {
            wait_until("the processes", SOON, || has_all(&marker));
        }
        if how != "kill" {
            wait_until("the end", SOON, || !is_running(&workspace, &session));
        }
        if how != "time out" {
            let grace = json!({"grace_ms": 50});
            let killed = promptly("a kill", || workspace.post(&format!("{session}/kill"), &grace));
            assert_eq!(killed.status, 200, "{how}: {}", killed.json());
        }
        // All is dead when it is answered, except what the kernel still takes apart.
        marker.assert_gone();
        assert!(is_running(&workspace, &neighbour), "{how}: the neighbour is dead");
    }
    Ok(())
}

/// Whether each of the scattered processes runs.
fn has_all(marker: &Marker) -> bool {
    let words: Vec<String> = marker.bearers().into_iter().flat_map(arguments).collect();
    (1..=4).all(|number| words.contains(&format!("{}{number}", marker.word())))
}

/// The arguments of a process.
fn arguments(pid: i32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
}

pub fn fork_bomb(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    drop(shared(&client)?);
    let body = json!({"sandbox": "workspace", "limits": {"max_pids": PIDS_MAX}});
    let workspace = client.create(&body);
    let marker = Marker::new();
    let neighbour = workspace.start(&json!({"cmd": "cat"}));
    let bomb = workspace.start(&json!({"cmd": "python3", "args": ["-c", BOMB, marker.word()]}));
    wait_until("no process is left", SOON, || marker.bearers().len() as u64 >= PIDS_MAX - 2);
    // The neighbour lives, and what needs no process inside is answered.
    let write = json!({"data": "still here", "newline": true});
    assert_eq!(workspace.post(&format!("{neighbour}/write"), &write).status, 200);
    wait_until("the neighbour's answer", SOON, || {
        workspace.get(&format!("{neighbour}/log")).json()["output"] == "still here"
    });
    let listed = promptly("the list", || workspace.get("/processes")).json();
    assert!(listed["processes"].as_array().unwrap().len() as u64 <= PIDS_MAX, "{listed}");
    let crowded = promptly("a program", || workspace.post("/run", &json!({"cmd": "true"})));
    assert!([200, 500, 503].contains(&crowded.status), "{}", crowded.json());
    let grace = json!({"grace_ms": 1});
    let killed = promptly("a kill", || workspace.post(&format!("{bomb}/kill"), &grace));
    assert_eq!(killed.status, 200, "{}", killed.json());
    marker.assert_gone();
    assert!(is_running(&workspace, &neighbour), "the neighbour is dead");
    assert_eq!(workspace.sh("echo the init lives"), "the init lives\n");
    Ok(())
}

pub fn memory_hog(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let workspace = shared(&client)?;
    let take = "import time; x = b'x' * (20 << 20); print('up', flush=True); time.sleep(1000)";
    let neighbour = workspace.start(&json!({"cmd": "python3", "args": ["-c", take]}));
    wait_until("the neighbour's memory", SOON, || {
        workspace.get(&neighbour).json()["lines"].as_u64().unwrap() > 0
    });
    let left = Marker::new();
    workspace
        .sh(&format!("setsid sh -c 'exec sleep 1000' & setsid sleep 1000 & : {}", left.word()));
    let marker = Marker::new();
    let body = json!({"cmd": "sh", "args": ["-c", HOG, marker.word()], "timeout_ms": 10_000});
    let result = workspace.run(&body);
    assert_eq!(result["limit"], "memory", "{result}");
    marker.assert_gone();
    assert!(is_running(&workspace, &neighbour), "the neighbour is dead");
    let listed = workspace.get("/processes").json();
    assert_eq!(listed["processes"].as_array().unwrap().len(), 3, "{listed}");
    Ok(())
}

pub fn memory_of_files(target: &Target) -> Result<(), Unexercised> {
    target.own()?;
    let client = target.engine()?;
    let workspace = shared(&client)?;
    workspace.sh("echo kept >/dev/shm/mark");
    // What they write outlives them, and stays charged to all. The writer is the largest process.
    for _ in 0..3 {
        let marker = Marker::new();
        let script = "setsid sh -c \"$DEAF\" $0 & python3 -c \"$FILL\"; exec sleep 1000";
        let body = json!({"cmd": "sh", "args": ["-c", script, marker.word()], "timeout_ms": 10_000,
            "env": {"DEAF": DEAF, "FILL": FILL}});
        let result = workspace.run(&body);
        assert_eq!(result["limit"], "memory", "{result}");
        marker.assert_gone();
    }
    assert!(workspace.used().0 > MEMORY_MIB << 19, "{:?}", workspace.used());
    assert_eq!(workspace.ask("DELETE", "/files?path=full", b"").status, 204);
    assert_eq!(workspace.sh("cat /dev/shm/mark"), "kept\n", "the sandbox is another one");
    Ok(())
}
