//! Every way to take more room than a workspace has.

use cofferdam_test_server::service::wait_until;
use serde_json::json;

use crate::Unexercised;
use crate::engine::{SOON, Workspace, at_once};
use crate::target::Target;

const MIB: u64 = 1 << 20;
/// The limits of the workspace.
const LIMIT_BYTES: u64 = 8 * MIB;
const LIMIT_INODES: u64 = 300;
/// What an empty workspace has, at most.
const OWN_INODES: u64 = 20;

/// The ways, as scripts that print how many bytes or entries they got.
const WAYS: [(&str, &str); 8] = [
    ("one file", "head -c 64M /dev/zero >work/big 2>/dev/null; stat -c %s work/big"),
    ("/tmp", "head -c 64M /dev/zero >/tmp/big 2>/dev/null; stat -c %s /tmp/big"),
    ("$HOME", "head -c 64M /dev/zero >$HOME/big 2>/dev/null; stat -c %s $HOME/big"),
    (
        "many files",
        "for n in $(seq 64); do head -c 1M /dev/zero >work/f$n || break; done 2>/dev/null; du -sb work | cut -f1",
    ),
    (
        "deleted files that are open",
        "for n in 3 4 5 6 7 8; do eval \"exec $n>work/open\"; rm work/open; head -c 4M /dev/zero >&$n || break
         got=$((n * 4 - 8)); done 2>/dev/null; echo $((${got:-0} * 1048576))",
    ),
    (
        "allocated blocks",
        "fallocate -l 64M work/all 2>/dev/null; fallocate -l 4M work/half; fallocate -n -l 32M work/half 2>/dev/null
         stat -c '%b %B' work/half | { read b s; echo $((b * s)); }",
    ),
    ("holes that are filled", "truncate -s 1G work/s; dd if=/dev/zero of=work/s bs=1M seek=500 count=64 conv=notrunc 2>/dev/null; stat -c '%b %B' work/s | { read b s; echo $((b * s)); }"),
    ("a memory map", "exec python3 -c \"
import mmap, os, signal
f = os.open('work/m', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 64 << 20)
if os.fork() == 0:
    m = mmap.mmap(f, 64 << 20)
    for at in range(0, 64 << 20, 4096): m[at] = 1
    os._exit(0)
os.wait(); print(os.stat('work/m').st_blocks * 512)\""),
];
/// The ways to take inodes.
const INODES: [(&str, &str); 4] = [
    ("empty files", "n=0; while true >work/i$n; do n=$((n + 1)); done 2>/dev/null; echo $n"),
    (
        "hard links",
        "true >work/l; n=0; while ln work/l work/l$n; do n=$((n + 1)); done 2>/dev/null; echo $n",
    ),
    ("directories", "n=0; while mkdir /tmp/d$n; do n=$((n + 1)); done 2>/dev/null; echo $n"),
    ("links", "n=0; while ln -s x $HOME/s$n; do n=$((n + 1)); done 2>/dev/null; echo $n"),
];

fn number(workspace: &Workspace<'_>, script: &str) -> u64 {
    let body = json!({"cmd": "sh", "args": ["-c", script], "timeout_ms": 20_000});
    let result = workspace.run(&body);
    let said = result["stdout"].as_str().unwrap();
    said.trim().parse().unwrap_or_else(|_| panic!("{script}: {result}"))
}

pub fn every_way_to_fill_it(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let body = json!({
        "policy": {"max_disk_bytes": LIMIT_BYTES},
        "max_inodes": LIMIT_INODES,
        "limits": {"memory_mb": 256},
    });
    let workspace = client.create(&body);
    workspace.put("small", b"kept");
    let empty = workspace.used();
    let is_empty = || {
        let used = workspace.used();
        used.0 <= empty.0 + 64 * 1024 && used.1 <= empty.1 + 4
    };
    let clean = "rm -rf work/* /tmp/big /tmp/d* $HOME/*";
    for (way, script) in WAYS {
        let got = number(&workspace, script);
        assert!((MIB..=LIMIT_BYTES).contains(&got), "{way}: {got} bytes");
        assert!(workspace.used().0 <= LIMIT_BYTES, "{way}: {:?}", workspace.used());
        if way == "one file" {
            let full = workspace.ask("PUT", "/files?path=more", &vec![7; 4 << 20]);
            full.assert_error(507, "workspace.disk_full");
            let small = workspace.ask("PUT", "/files?path=small", &vec![7; 4 << 20]);
            small.assert_error(507, "workspace.disk_full");
            assert_eq!(workspace.get("/files?path=small").body, b"kept");
        }
        number(&workspace, &format!("{clean}; echo 0"));
        wait_until("the room is free again", SOON, is_empty);
    }
    for (way, script) in INODES {
        let got = number(&workspace, script);
        assert!((100..=LIMIT_INODES).contains(&got), "{way}: {got} entries");
        assert!(workspace.used().1 <= LIMIT_INODES, "{way}: {:?}", workspace.used());
        workspace.post("/mkdir", &json!({"path": "x/y"})).assert_error(507, "workspace.disk_full");
        number(&workspace, &format!("{clean}; echo 0"));
        wait_until("the room is free again", SOON, is_empty);
    }
    assert!(empty.1 <= OWN_INODES, "{empty:?}");
    huge_sparse_file(&workspace);
    Ok(())
}

/// A file that has no bytes and a huge size delays no request.
fn huge_sparse_file(workspace: &Workspace<'_>) {
    workspace.sh("truncate -s 1T work/sparse");
    let collected =
        at_once("a collection", || workspace.post("/collect", &json!({"patterns": ["work/*"]})));
    let collected = collected.json();
    assert_eq!(collected["limits_hit"], true, "{}", collected["limits_hit"]);
    for door in ["/tar?path=work", "/digest?path=work"] {
        let reply = at_once(door, || workspace.get(door));
        reply.assert_error(413, "validation.too_large");
    }
    workspace.sh("rm work/sparse");
}
