//! What programs that share a sandbox try against its init.

use serde_json::json;

use crate::Unexercised;
use crate::engine::{EngineClient, WORKSPACES, Workspace, promptly};
use crate::observe::{assert_answers, lines};
use crate::probe::script;
use crate::target::Target;

/// The memory of all programs of a workspace together.
pub const MEMORY_MIB: u64 = 96;

/// A workspace whose programs share one sandbox.
pub fn shared(client: &EngineClient) -> Result<Workspace<'_>, Unexercised> {
    let body = json!({"sandbox": "workspace", "limits": {"memory_mb": MEMORY_MIB}});
    let made = client.post(WORKSPACES, &body);
    if made.status == 503 {
        return Err(Unexercised("needs cgroups for one sandbox of a workspace".to_owned()));
    }
    Ok(client.made(&made))
}

/// Runs a Python probe, and returns its attempts.
fn attempts(workspace: &Workspace<'_>, name: &str) -> Vec<(String, String)> {
    let body = json!({"cmd": "python3", "args": ["-c", script(name)], "timeout_ms": 30_000});
    let result = promptly("the attack", || workspace.run(&body));
    assert_eq!(result["exit_code"], 0, "{result}");
    lines(result["stdout"].as_str().unwrap())
}

/// Leaves a process and a file, which are there as long as the sandbox is.
fn mark(workspace: &Workspace<'_>) {
    workspace.sh(
        "echo kept >/dev/shm/mark; setsid sleep 1000 >/dev/null 2>&1 & echo $! >/workspace/mark",
    );
}

/// Panics unless the sandbox is the one that was marked.
fn assert_marked(workspace: &Workspace<'_>) {
    let seen = workspace.sh("cat /dev/shm/mark; kill -0 $(cat /workspace/mark) && echo alive");
    assert_eq!(seen, "kept\nalive\n");
}

pub fn signals_to_it(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = shared(&client)?;
    mark(&workspace);
    let tried = attempts(&workspace, "kill_init.py");
    // The kernel drops signals to a PID 1 that handles none, and says nothing.
    assert_answers(
        &tried,
        &[
            ("signals", "64"),
            ("ptrace", "none"),
            ("priority", "ok|EPERM"),
            ("groups", "none"),
            ("namespaces", "none"),
        ],
    );
    assert_marked(&workspace);
    // Every process that it can reach but itself: its neighbour dies, the init does not.
    let all = workspace.run(&json!({"cmd": "sh", "args": ["-c", "kill -KILL -1"]}));
    assert_ne!(all["outcome"], "not_started", "{all}");
    assert_eq!(workspace.sh("cat /dev/shm/mark"), "kept\n");
    Ok(())
}

pub fn what_it_holds(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = shared(&client)?;
    mark(&workspace);
    let tried = attempts(&workspace, "reach_init.py");
    assert_answers(
        &tried,
        &[
            ("inherited", "none"),
            ("memory", "none"),
            ("descriptors", "none"),
            ("stolen", "none"),
            ("limits", "none"),
            ("sockets", "none"),
        ],
    );
    assert_marked(&workspace);
    Ok(())
}
