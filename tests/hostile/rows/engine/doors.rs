//! Every request that takes a path.

use cofferdam_test_server::exchange::Reply;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};

use super::archives;
use crate::Unexercised;
use crate::engine::{Workspace, at_once};
use crate::target::Target;

/// Paths that lead out of a workspace, or nowhere.
const LEAVING: [&str; 12] = [
    "../x",
    "a/../../x",
    "work/../../../etc/passwd",
    "/etc/passwd",
    "//etc/passwd",
    "/",
    "/workspace/../etc/passwd",
    "/tmp/../etc/passwd",
    "/proc/self/root/etc/passwd",
    "/workspace2/x",
    "/tmpx/x",
    "work/\0x",
];
/// Paths of directories that no request may remove, replace or move.
const TOPS: [&str; 5] = [".", "work/..", "/workspace", "/tmp", "/tmp/home/.."];

/// A request with a path in one of its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Door {
    Get,
    Put,
    Delete,
    Stat,
    List,
    Digest,
    Pack,
    Unpack,
    PutFiles,
    Mkdir,
    MoveFrom,
    MoveTo,
    RunIn,
    SessionIn,
    ContextIn,
    Collect,
}

impl Door {
    pub const ALL: [Self; 16] = [
        Self::Get,
        Self::Put,
        Self::Delete,
        Self::Stat,
        Self::List,
        Self::Digest,
        Self::Pack,
        Self::Unpack,
        Self::PutFiles,
        Self::Mkdir,
        Self::MoveFrom,
        Self::MoveTo,
        Self::RunIn,
        Self::SessionIn,
        Self::ContextIn,
        Self::Collect,
    ];

    /// Sends the request with this path.
    #[track_caller]
    pub fn knock(self, workspace: &Workspace<'_>, path: &str) -> Reply {
        let query = utf8_percent_encode(path, NON_ALPHANUMERIC);
        let at = |door: &str| format!("{door}?path={query}");
        let post = |door: &str, body: Value| workspace.post(door, &body);
        match self {
            Self::Get => workspace.get(&at("/files")),
            Self::Put => workspace.ask("PUT", &at("/files"), b"x"),
            Self::Delete => workspace.ask("DELETE", &at("/files"), b""),
            Self::Stat => workspace.get(&at("/stat")),
            Self::List => workspace.get(&at("/list")),
            Self::Digest => workspace.get(&at("/digest")),
            Self::Pack => workspace.get(&at("/tar")),
            Self::Unpack => workspace.ask("PUT", &at("/tar"), &archives::of_one_file("x")),
            Self::PutFiles => post("/files", json!({"files": [{"path": path, "content": "x"}]})),
            Self::Mkdir => post("/mkdir", json!({"path": path})),
            Self::MoveFrom => post("/move", json!({"from": path, "to": "work/moved"})),
            Self::MoveTo => {
                workspace.put("work/moving", b"x");
                post("/move", json!({"from": "work/moving", "to": path, "overwrite": true}))
            }
            Self::RunIn => post("/run", json!({"cmd": "ls", "args": ["-a"], "cwd": path})),
            Self::SessionIn => post("/sessions", json!({"cmd": "true", "cwd": path})),
            Self::ContextIn => post("/contexts", json!({"language": "python", "cwd": path})),
            Self::Collect => post("/collect", json!({"patterns": [path]})),
        }
    }

    /// Whether the request takes a pattern, which may also match nothing.
    pub fn takes_pattern(self) -> bool {
        self == Self::Collect
    }

    /// Whether the request changes what is at the path itself.
    fn changes_entry(self) -> bool {
        matches!(
            self,
            Self::Put | Self::Delete | Self::PutFiles | Self::Mkdir | Self::MoveFrom | Self::MoveTo
        )
    }
}

/// Asserts that a request was refused for its path, or that its pattern matched nothing.
#[track_caller]
fn assert_refused(door: Door, path: &str, reply: &Reply) {
    let answer = reply.json();
    if door.takes_pattern() && reply.status == 200 {
        return assert_eq!(answer["files"], json!([]), "{door:?} {path:?}");
    }
    assert_eq!(reply.status, 422, "{door:?} {path:?}: {answer}");
}

pub fn paths_that_leave(target: &Target) -> Result<(), Unexercised> {
    let client = target.engine()?;
    let workspace = client.create(&json!({}));
    workspace.put("work/moving", b"x");
    let before = workspace.names();
    let long = [format!("{}x", "a/".repeat(2048)), "a".repeat(256)];
    let long: Vec<&str> = long.iter().map(String::as_str).collect();
    for door in Door::ALL {
        for path in LEAVING.iter().chain(&long) {
            let reply = at_once("a refusal", || door.knock(&workspace, path));
            assert_refused(door, path, &reply);
            if LEAVING.contains(path) && reply.status == 422 && !door.takes_pattern() {
                reply.assert_error(422, "validation.path_escape");
            }
        }
        for top in TOPS.iter().filter(|_| door.changes_entry()) {
            let reply = door.knock(&workspace, top);
            assert!((400..500).contains(&reply.status), "{door:?} {top}: {}", reply.json());
        }
    }
    assert_eq!(workspace.names(), before);
    assert_eq!(workspace.sh("ls -d /workspace/work /tmp/home | wc -l"), "2\n");
    Ok(())
}
