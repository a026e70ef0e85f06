//! Layers of forks and snapshots.

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::Unexercised;
use crate::engine::{SOON, Workspace, promptly};
use crate::probe::script;
use crate::target::Target;

/// Snapshots of writers.
const ROUNDS: usize = 6;

/// What a program sees of all files: names, types, contents.
const SEEN: &str = "find . /tmp -path ./runs -prune -o -type f -printf '%p %s\n' -o -printf '%p %y\n' | sort; find . /tmp -type f -name kept | sort | xargs cat";

pub fn marks_of_overlays(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let source = client.create(&json!({}));
    // With a frozen layer below from the start, and without.
    for round in 0..2 {
        let made =
            source.run(&json!({"cmd": "python3", "args": ["-c", script("overlay_marks.py")]}));
        assert_eq!(made["exit_code"], 0, "{made}");
        let made = made["stdout"].as_str().unwrap().to_owned();
        for refused in ["whiteout", "device", "trusted", "security"] {
            assert!(!made.split_whitespace().any(|word| word == refused), "{round}: {made}");
        }
        let seen = source.sh(SEEN);
        assert!(seen.matches("kept").count() >= 4, "{seen}");
        let fork = client.made(&source.post("/fork", &json!({})));
        assert_eq!(fork.sh(SEEN), seen, "round {round}");
        // The fork makes its own over them, and is forked again.
        let again =
            fork.run(&json!({"cmd": "python3", "args": ["-c", script("overlay_marks.py")]}));
        assert_eq!(again["exit_code"], 0, "{again}");
        fork.sh("rm -r work/d/e; mkdir work/d/e; ls -A work/d/e | wc -l; echo new >work/d/kept");
        let seen_in_fork = fork.sh(SEEN);
        let second = client.made(&fork.post("/fork", &json!({})));
        assert_eq!(second.sh(SEEN), seen_in_fork, "round {round}");
        assert_eq!(second.sh("ls -A work/d/e | wc -l"), "0\n");
        assert_eq!(source.sh(SEEN), seen, "a fork changed its source");
        // Layers that nothing needs any more are merged.
        drop((fork, second));
        assert_eq!(source.sh(SEEN), seen, "round {round}, merged");
    }
    Ok(())
}

/// The numbers that `writer.py` has written, in the order in which it writes them.
pub fn numbers(workspace: &Workspace<'_>) -> [u64; 5] {
    let read = |path: &str, from: usize| -> u64 {
        let body = workspace.get(&format!("/files?path=work/{path}")).body;
        let text = String::from_utf8(body).unwrap();
        text.get(from..from + 20).unwrap_or_else(|| panic!("{path}: {text}")).parse().unwrap()
    };
    [read("a", 0), read("b", 0), read("z", 0), read("shared", 0), read("shared", 100)]
}

pub fn writers_during_snapshots(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let source = client.create(&json!({}));
    let writer = source.start(&json!({"cmd": "python3", "args": ["-c", script("writer.py")]}));
    wait_until("the writer", SOON, || source.get(&writer).json()["lines"] == 1);
    // Programs that are stopped, that start others, and that hold what was removed.
    let others = [
        "echo up; kill -STOP $$",
        "echo up; while :; do true & wait; done",
        "exec 5>work/held; rm work/held; echo up; while :; do echo x >&5; sleep 0.01; done",
    ];
    let others: Vec<String> = others.iter().map(|script| source.start_sh(script, "x")).collect();
    let mut last = 0;
    for round in 0..ROUNDS {
        let taken = promptly("a snapshot", || source.post("/snapshot", &json!({})));
        if taken.status == 503 {
            taken.assert_error(503, "snapshot.unavailable");
            continue;
        }
        assert_eq!(taken.status, 201, "{}", taken.json());
        let id = taken.json()["snapshot_id"].clone();
        let copy = client.create(&json!({"snapshot": id}));
        let [a, b, z, written, mapped] = numbers(&copy);
        let in_order = a >= b && b >= z && z >= written && written >= mapped && mapped + 1 >= a;
        assert!(in_order, "round {round}: {a} {b} {z} {written} {mapped}");
        assert!(a >= last, "{a} after {last}");
        last = a;
        assert_eq!(delete_snapshot(&source, &id), 204);
    }
    assert!(last > 0, "no snapshot was taken");
    wait_until("the writer goes on", SOON, || numbers(&source)[0] > last);
    for session in others.iter().chain([&writer]) {
        assert_eq!(source.get(session).json()["status"], "running");
        assert_eq!(source.ask("DELETE", session, b"").status, 204);
    }
    Ok(())
}

fn delete_snapshot(workspace: &Workspace<'_>, id: &Value) -> u16 {
    workspace.client().ask("DELETE", &format!("/v1/snapshots/{}", id.as_str().unwrap()), b"").status
}
