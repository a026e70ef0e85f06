//! Verbs for programs of a workspace.

use ureq::http::Method;

use super::keys::{LIMITS, LINES, PROGRAM, SESSION, TERMINAL, WORKSPACE};
use crate::cli::engine::workspace::verb::KeyKind::{Flag, Integer, Millis, One, Text};
use crate::cli::engine::workspace::verb::KeyPlace::{Body, Query};
use crate::cli::engine::workspace::verb::VerbAction::{Attach, Exchange, Run};
use crate::cli::engine::workspace::verb::{VerbKey, WorkspaceVerb};

/// In the order of the help text.
pub const PROGRAM_VERBS: &[WorkspaceVerb] = &[
    WorkspaceVerb {
        name: "run",
        about: "Run a program, and pass its output through",
        method: Method::POST,
        path: "/v1/workspaces/{id}/run",
        keys: &[WORKSPACE, PROGRAM, LIMITS],
        action: Run,
        examples: "cofferdam workspace run $ID -- python3 work/main.py\n\
            cofferdam workspace run $ID --stdin-file - --timeout-ms 30s -- wc -l <names.txt",
    },
    WorkspaceVerb {
        name: "start",
        about: "Start a program that goes on by itself: a session",
        method: Method::POST,
        path: "/v1/workspaces/{id}/sessions",
        keys: &[WORKSPACE, TERMINAL, PROGRAM, LIMITS],
        action: Exchange,
        examples: "cofferdam workspace start $ID --tty -- bash",
    },
    WorkspaceVerb {
        name: "attach",
        about: "Connect this terminal to a session",
        method: Method::GET,
        path: "/v1/workspaces/{id}/sessions/{session}/attach",
        keys: &[
            SESSION,
            &[
                VerbKey::option(
                    "offset",
                    "offset",
                    Query,
                    Text,
                    "The first byte of output, or `end` [default: 0]",
                ),
                VerbKey::option("readonly", "readonly", Query, One, "Show output only"),
            ],
        ],
        action: Attach,
        examples: "cofferdam workspace attach $ID $SESSION\n\
            cofferdam workspace attach $ID $SESSION --readonly --offset end\n\n\
            A session with a terminal gets every key; ^] alone leaves it running. stdin that ends closes the\n\
            program's. The exit code is the program's; 128+n for signal n; 124 for its time limit.",
    },
    WorkspaceVerb {
        name: "poll",
        about: "Print the output since the last poll",
        method: Method::POST,
        path: "/v1/workspaces/{id}/sessions/{session}/poll",
        keys: &[
            SESSION,
            &[
                LINES,
                VerbKey::option("wait-ms", "wait_ms", Body, Millis, "How long to wait for output"),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace poll $ID $SESSION --wait-ms 10s",
    },
    WorkspaceVerb {
        name: "log",
        about: "Print output of a session, without moving the cursor of polls",
        method: Method::GET,
        path: "/v1/workspaces/{id}/sessions/{session}/log",
        keys: &[
            SESSION,
            &[
                VerbKey::option("offset", "offset", Query, Integer, "The first line [default: 0]"),
                VerbKey::option(
                    "limit",
                    "limit",
                    Query,
                    Integer,
                    "The maximum number of lines; 0 for all",
                ),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace log $ID $SESSION --offset 100 --limit 50",
    },
    WorkspaceVerb {
        name: "write",
        about: "Write to the standard input of a session",
        method: Method::POST,
        path: "/v1/workspaces/{id}/sessions/{session}/write",
        keys: &[
            SESSION,
            &[
                VerbKey::word("data", Body, Text, "The text"),
                VerbKey::option("encoding", "encoding", Body, Text, "utf-8 or base64, of the text"),
                VerbKey::option("newline", "newline", Body, Flag, "Add a line end"),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace write $ID $SESSION 'print(6 * 7)' --newline",
    },
    WorkspaceVerb {
        name: "kill",
        about: "End the program of a session",
        method: Method::POST,
        path: "/v1/workspaces/{id}/sessions/{session}/kill",
        keys: &[
            SESSION,
            &[VerbKey::option(
                "grace-ms",
                "grace_ms",
                Body,
                Millis,
                "How long it may take to end [default: 2000]",
            )],
        ],
        action: Exchange,
        examples: "cofferdam workspace kill $ID $SESSION --grace-ms 5s",
    },
    WorkspaceVerb {
        name: "close",
        about: "Kill what runs in a session, and forget it",
        method: Method::DELETE,
        path: "/v1/workspaces/{id}/sessions/{session}",
        keys: &[SESSION],
        action: Exchange,
        examples: "cofferdam workspace close $ID $SESSION",
    },
    WorkspaceVerb {
        name: "state",
        about: "Show a session",
        method: Method::GET,
        path: "/v1/workspaces/{id}/sessions/{session}",
        keys: &[SESSION],
        action: Exchange,
        examples: "cofferdam workspace state $ID $SESSION",
    },
    WorkspaceVerb {
        name: "result",
        about: "Print the result of a session that has ended",
        method: Method::GET,
        path: "/v1/workspaces/{id}/sessions/{session}/result",
        keys: &[SESSION],
        action: Exchange,
        examples: "cofferdam workspace result $ID $SESSION",
    },
];
