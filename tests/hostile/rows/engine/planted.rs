//! What programs plant in a workspace for the requests of clients.

use std::path::Path;

use serde_json::json;

use super::archives;
use super::doors::Door;
use crate::Unexercised;
use crate::engine::{PeakMemory, Workspace, promptly};
use crate::observe::{assert_answers, lines, number_of};
use crate::rows::{at_once, files};
use crate::target::Target;

/// The paths of a workspace through links that a script of [`plant`] makes.
const THROUGH: [&str; 9] = [
    "work/dir/sentinel",
    "work/dir/new",
    "work/chain/sentinel",
    "work/chain/new",
    "work/up/etc/passwd",
    "work/root/etc/passwd",
    "work/etc/planted-by-hostile",
    "work/loop/x",
    "/tmp/dir/new",
];
/// How many descriptors of the service the links try.
const DESCRIPTORS: usize = 40;
/// Swaps of directory and link in the time of the race.
const SWAPS_MIN: u64 = 1_000;

/// The directory outside that links lead to.
fn outside(target: &Target) -> String {
    let directory = target.own().map_or(Path::new("/etc"), |own| own.sentinel.directory.path());
    directory.to_str().unwrap().to_owned()
}

fn plant(workspace: &Workspace<'_>, outside: &str) {
    let script = format!(
        "cd work; ln -s {outside} dir; ln -s {outside}/sentinel secret; ln -s dir chain3
         ln -s chain3 chain2; ln -s ./chain2 chain; ln -s ../../../../.. up; ln -s loop loop
         ln -s /proc/self/root root; ln -s /etc etc; ln -s /etc/shadow shadow; ln -s {outside} /tmp/dir
         mkdir fds; for fd in $(seq 0 {DESCRIPTORS}); do ln -s /proc/self/fd/$fd fds/$fd; done
         ln -s /proc/1/root/etc init; ln -s /proc/thread-self/fd/8/sentinel inherited"
    );
    workspace.sh(&script);
}

pub fn links(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let other = client.create(&json!({}));
    other.put("work/others", b"another workspace");
    let workspace = client.create(&json!({}));
    plant(&workspace, &outside(target));
    for door in Door::ALL {
        for path in THROUGH {
            let reply = promptly("an answer", || door.knock(&workspace, path));
            let answer = if reply.status == 200 { reply.json() } else { json!({}) };
            let is_fine = match door.takes_pattern() {
                true => reply.status == 422 || answer["files"] == json!([]),
                false => matches!(reply.status, 404 | 409),
            };
            assert!(is_fine, "{door:?} {path}: {} {}", reply.status, reply.json());
        }
    }
    // Links as last names: reading follows them, and they lead out.
    for name in ["secret", "shadow", "inherited", "loop", "dir", "up"] {
        let reply = Door::Get.knock(&workspace, &format!("work/{name}"));
        // The place of the secret can have a path that means another file in the sandbox.
        assert!(matches!(reply.status, 404 | 409), "{name}: {}", reply.json());
    }
    for number in 0..=DESCRIPTORS {
        for below in ["", "/work/others", "/workspace/work/others", "/etc/passwd"] {
            let reply = Door::Get.knock(&workspace, &format!("work/fds/{number}{below}"));
            reply.assert_error(409, "file.through_link");
        }
    }
    let collected = workspace.post("/collect", &json!({"patterns": ["work/**"]})).json();
    let files = collected["files"].as_array().unwrap();
    assert!(files.iter().all(|file| file["name"] == "work/moving"), "{collected}");
    // A link of the workspace in the way of an archive, and of a working directory.
    let archive = archives::of_one_file("dir/new");
    let unpacked = workspace.ask("PUT", "/tar?path=work", &archive);
    unpacked.assert_error(409, "file.through_link");
    if let Ok(own) = target.own() {
        own.sentinel.assert_intact();
    }
    Ok(())
}

pub fn directory_swapped_for_a_link(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let outside = outside(target);
    let program = workspace.upload("swap");
    // Into a file, since the sessions that the requests start may push this one out of the table.
    let script = "exec \"$0\" /workspace/work \"$1\" 1500 >/tmp/swaps";
    let session = workspace.start(&json!({"cmd": "sh", "args": ["-c", script, program, outside]}));
    let state = || workspace.get(&session).json();
    // Two clients, so that one is between two calls of the kernel while the other one waits.
    let counts = at_once(2, |first| {
        let (mut served, mut refused) = (0_u64, 0_u64);
        while state()["status"] == "running" {
            for door in Door::ALL.into_iter().skip(first).step_by(2) {
                for name in ["work/d/sentinel", "work/d/new"] {
                    match door.knock(&workspace, name).status {
                        200..300 => served += 1,
                        400..500 => refused += 1,
                        status => panic!("{door:?}: {status}"),
                    }
                }
            }
        }
        (served, refused)
    });
    let served: u64 = counts.iter().map(|(served, _)| served).sum();
    let refused: u64 = counts.iter().map(|(_, refused)| refused).sum();
    let swaps = number_of(&lines(&workspace.sh("cat /tmp/swaps")), "swaps");
    assert!(swaps >= SWAPS_MIN, "only {swaps} swaps");
    assert!(served > 0 && refused > 0, "{served} served, {refused} refused");
    if let Ok(own) = target.own() {
        own.sentinel.assert_intact();
    }
    Ok(())
}

pub fn special_files(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    workspace.sh("touch work/one work/two work/three");
    let made = workspace.probe("nodes", &["/workspace/work"]);
    assert!(number_of(&made, "replaced") >= 3, "{made:?}");
    workspace.sh("cd work; ln -s fifo link; mkdir d; mkfifo d/fifo");
    let before = workspace.names();
    for path in ["work/fifo", "work/socket", "work/one", "work/link", "work/d/fifo"] {
        for door in [Door::Get, Door::Unpack, Door::RunIn, Door::SessionIn, Door::List] {
            let reply = promptly("a special file", || door.knock(&workspace, path));
            let code = reply.json()["code"].as_str().unwrap_or_default().to_owned();
            assert_eq!(reply.status, 409, "{door:?} {path}: {code}");
            assert!(code == "file.not_regular" || path == "work/link", "{door:?} {path}: {code}");
        }
        let collected = promptly("a collection", || Door::Collect.knock(&workspace, path));
        assert_eq!(collected.json()["files"], json!([]), "{path}");
    }
    assert_eq!(workspace.names(), before);
    for door in [Door::Digest, Door::Pack, Door::List, Door::Collect] {
        let path = if door == Door::Collect { "work/**" } else { "work" };
        assert_eq!(promptly("a tree", || door.knock(&workspace, path)).status, 200, "{door:?}");
    }
    let fork = promptly("a fork", || workspace.post("/fork", &json!({})));
    let fork = client.made(&fork);
    assert_eq!(fork.sh("[ -p work/fifo ] && [ -S work/socket ] && echo same"), "same\n");
    Ok(())
}

pub fn hard_links_and_nodes(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    for (number, place) in ["/workspace/work", "/tmp", "/tmp/home"].into_iter().enumerate() {
        let mut made = workspace.probe("nodes", &[place]);
        made.retain(|(name, _)| name != "replaced");
        assert_answers(&made, &files::NODES);
        let linked =
            workspace.sh(&format!("mkdir {place}/links{number}; echo {place}/links{number}"));
        let linked = workspace.probe("hard_links", &[linked.trim()]);
        assert_answers(&linked, &files::HARD_LINKS);
    }
    // A second name keeps its contents, mode and owner, whatever is done to the first one.
    workspace.sh(
        "cd work; echo old >kept; chmod 600 kept; mkdir d; for n in a b c d/e; do ln kept $n; done",
    );
    workspace.put("work/a&mode=0755", b"new");
    let new = json!({"files": [{"path": "work/b", "content": "new", "mode": 511}]});
    assert_eq!(workspace.post("/files", &new).status, 200);
    let archive = archives::of_one_file("c");
    assert_eq!(workspace.ask("PUT", "/tar?path=work", &archive).status, 200);
    assert_eq!(workspace.ask("DELETE", "/files?path=work/d&recursive=true", b"").status, 204);
    let kept = "cat work/kept; stat -c '%a %u %h' work/kept; stat -c %h work/a work/b work/c";
    assert_eq!(workspace.sh(kept), "old\n600 10001 1\n1\n1\n1\n");
    Ok(())
}

pub fn metadata(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    let outside = outside(target);
    let peak = target.own().ok().map(PeakMemory::begin);
    let deep = |open: &str, close: &str, depth: usize| {
        format!("{{\"version\":7,\"x\":{}{}}}", open.repeat(depth), close.repeat(depth))
    };
    let long = format!("{{\"version\":7,\"x\":\"{}\"}}", "x".repeat(1 << 20));
    let contents =
        [deep("[", "]", 64), deep("{\"a\":", "}", 100_000), deep("[", "]", 500_000), long];
    for content in contents {
        workspace.sh("rm -rf metadata.json");
        workspace.put("metadata.json", content.as_bytes());
        assert_absent(&workspace, content.get(..40).unwrap_or_default());
    }
    for plant in [
        &*format!("ln -s {outside}/sentinel metadata.json"),
        "ln -s /etc/passwd metadata.json",
        "ln -s /proc/self/mem metadata.json",
        "ln -s /dev/zero metadata.json",
        "mkfifo metadata.json",
        "mkdir -p metadata.json/x",
        "truncate -s 1G metadata.json",
        "truncate -s 1T metadata.json",
        "echo '{\"version\":7}' >m; truncate -s 2M m; chmod 0 m; mv m metadata.json",
        ":",
    ] {
        workspace.sh(&format!("rm -rf metadata.json; {plant}"));
        assert_absent(&workspace, plant);
    }
    // A link that is put there at any moment is never followed.
    let flip = "while :; do ln -sfn /etc/passwd m; mv -T m metadata.json; echo '{}' >m
        mv -T m metadata.json; echo round; done";
    let session = workspace.start_sh(flip, "flip");
    for _ in 0..50 {
        assert_eq!(workspace.get("/metadata").status, 200);
    }
    assert_eq!(workspace.ask("DELETE", &session, b"").status, 204);
    if let Some(peak) = peak {
        peak.assert_grew_at_most(8);
    }
    Ok(())
}

/// Asserts that the metadata is that of a new workspace, and that the next use of it works.
#[track_caller]
fn assert_absent(workspace: &Workspace<'_>, what: &str) {
    let reply = promptly(what, || workspace.get("/metadata"));
    assert_eq!((reply.status, &reply.json()["version"]), (200, &json!(1)), "{what}");
    let collected = promptly(what, || workspace.post("/collect", &json!({"patterns": ["out/*"]})));
    assert_eq!(collected.status, 200, "{what}: {}", collected.json());
}
