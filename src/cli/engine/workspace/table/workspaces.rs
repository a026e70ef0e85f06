//! Verbs for whole workspaces.

use ureq::http::Method;

use super::keys::{CREATE, LIMITS, PAGE, SNAPSHOT, WORKSPACE};
use crate::cli::engine::workspace::verb::KeyKind::{Boolean, Flag, Text};
use crate::cli::engine::workspace::verb::KeyPlace::{Body, Query};
use crate::cli::engine::workspace::verb::VerbAction::Exchange;
use crate::cli::engine::workspace::verb::{VerbKey, WorkspaceVerb};

/// In the order of the help text.
pub const WORKSPACE_VERBS: &[WorkspaceVerb] = &[
    WorkspaceVerb {
        name: "describe",
        about: "Show what the engine can do",
        method: Method::GET,
        path: "/v1/engine",
        keys: &[],
        action: Exchange,
        examples: "cofferdam workspace describe",
    },
    WorkspaceVerb {
        name: "create",
        about: "Create a workspace",
        method: Method::POST,
        path: "/v1/workspaces",
        keys: &[CREATE, SNAPSHOT, LIMITS],
        action: Exchange,
        examples: "cofferdam workspace create --exec-id build --max-disk-bytes 1GiB --env LANG=C\n\
            cofferdam workspace create --exec-id agent --acquire --sandbox workspace --persist",
    },
    WorkspaceVerb {
        name: "list",
        about: "List workspaces, newest first",
        method: Method::GET,
        path: "/v1/workspaces",
        keys: &[
            &[
                VerbKey::option("exec-id", "exec_id", Query, Text, "Only those with this label"),
                VerbKey::option("status", "status", Query, Text, "Only active or parked ones"),
            ],
            PAGE,
        ],
        action: Exchange,
        examples: "cofferdam workspace list --status active --limit 10",
    },
    WorkspaceVerb {
        name: "show",
        about: "Show a workspace, which is no use of it",
        method: Method::GET,
        path: "/v1/workspaces/{id}",
        keys: &[WORKSPACE],
        action: Exchange,
        examples: "cofferdam workspace show $ID",
    },
    WorkspaceVerb {
        name: "rm",
        about: "Kill everything in a workspace, and remove or park it",
        method: Method::DELETE,
        path: "/v1/workspaces/{id}",
        keys: &[
            WORKSPACE,
            &[VerbKey::option("purge", "purge", Query, Flag, "Remove what is parked too")],
        ],
        action: Exchange,
        examples: "cofferdam workspace rm $ID --purge",
    },
    WorkspaceVerb {
        name: "fork",
        about: "Create a workspace with the files of another",
        method: Method::POST,
        path: "/v1/workspaces/{id}/fork",
        keys: &[WORKSPACE, CREATE, LIMITS],
        action: Exchange,
        examples: "cofferdam workspace fork $ID --exec-id attempt-2",
    },
    WorkspaceVerb {
        name: "save",
        about: "Write the files of a persistent workspace to the store",
        method: Method::POST,
        path: "/v1/workspaces/{id}/save",
        keys: &[WORKSPACE],
        action: Exchange,
        examples: "cofferdam workspace save $ID",
    },
    WorkspaceVerb {
        name: "snapshot",
        about: "Keep the files of a workspace as they are now",
        method: Method::POST,
        path: "/v1/workspaces/{id}/snapshot",
        keys: &[
            WORKSPACE,
            &[VerbKey::option("persist", "persist", Body, Boolean, "Keep it over a restart")],
        ],
        action: Exchange,
        examples: "cofferdam workspace snapshot $ID --persist",
    },
    WorkspaceVerb {
        name: "snapshots",
        about: "List snapshots",
        method: Method::GET,
        path: "/v1/snapshots",
        keys: &[PAGE],
        action: Exchange,
        examples: "cofferdam workspace snapshots --limit 10",
    },
    WorkspaceVerb {
        name: "snapshot-rm",
        about: "Delete a snapshot; workspaces that were made of it keep their files",
        method: Method::DELETE,
        path: "/v1/snapshots/{snapshot}",
        keys: &[&[VerbKey::id("snapshot", "The snapshot")]],
        action: Exchange,
        examples: "cofferdam workspace snapshot-rm $SNAPSHOT",
    },
    WorkspaceVerb {
        name: "ps",
        about: "List the processes of a workspace whose programs share a sandbox",
        method: Method::GET,
        path: "/v1/workspaces/{id}/processes",
        keys: &[WORKSPACE],
        action: Exchange,
        examples: "cofferdam workspace ps $ID",
    },
    WorkspaceVerb {
        name: "signal",
        about: "Send a signal to a process that `ps` lists",
        method: Method::POST,
        path: "/v1/workspaces/{id}/processes/{pid}/signal",
        keys: &[
            WORKSPACE,
            &[
                VerbKey::id("pid", "The process"),
                VerbKey::word("signal", Body, Text, "The signal, such as TERM"),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace signal $ID 42 TERM",
    },
    WorkspaceVerb {
        name: "restart",
        about: "Kill everything in the sandbox of a workspace, and keep the files",
        method: Method::POST,
        path: "/v1/workspaces/{id}/restart",
        keys: &[WORKSPACE],
        action: Exchange,
        examples: "cofferdam workspace restart $ID",
    },
];
