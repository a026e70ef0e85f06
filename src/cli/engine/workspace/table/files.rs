//! Verbs for files of a workspace.

use ureq::http::Method;

use super::keys::{PAGE, WORKSPACE};
use crate::cli::engine::workspace::verb::KeyKind::{
    Count, Flag, Id, JsonFile, Text, Texts, Upload,
};
use crate::cli::engine::workspace::verb::KeyPlace::{Body, Query, Source, WholeBody};
use crate::cli::engine::workspace::verb::VerbAction::{Download, Exchange, Upload as Send};
use crate::cli::engine::workspace::verb::{VerbKey, WorkspaceVerb};

const PATH: VerbKey = VerbKey::word("path", Query, Text, "The path in the workspace");
const INTO: VerbKey = VerbKey::word("to", Body, Text, "The path in the workspace");

/// In the order of the help text.
pub const FILE_VERBS: &[WorkspaceVerb] = &[
    WorkspaceVerb {
        name: "put",
        about: "Write a file",
        method: Method::PUT,
        path: "/v1/workspaces/{id}/files",
        keys: &[
            WORKSPACE,
            &[
                VerbKey::word("file", Source, Upload, "The file; `-` for stdin"),
                PATH,
                VerbKey::option("mode", "mode", Query, Text, "Permission bits [default: 0644]"),
            ],
        ],
        action: Send,
        examples: "cofferdam workspace put $ID main.py work/main.py\n\
            tar -c src | cofferdam workspace put $ID - work/src.tar",
    },
    WorkspaceVerb {
        name: "get",
        about: "Print the bytes of a file",
        method: Method::GET,
        path: "/v1/workspaces/{id}/files",
        keys: &[WORKSPACE, &[PATH]],
        action: Download,
        examples: "cofferdam workspace get $ID out/plot.png >plot.png",
    },
    WorkspaceVerb {
        name: "ls",
        about: "List a directory",
        method: Method::GET,
        path: "/v1/workspaces/{id}/list",
        keys: &[
            WORKSPACE,
            &[
                PATH.or("."),
                VerbKey::option("depth", "depth", Query, Count, "How deep to list [default: 1]"),
            ],
            PAGE,
        ],
        action: Exchange,
        examples: "cofferdam workspace ls $ID\ncofferdam workspace ls $ID out --depth 3",
    },
    WorkspaceVerb {
        name: "stat",
        about: "Show the type, size and permission bits of a file",
        method: Method::GET,
        path: "/v1/workspaces/{id}/stat",
        keys: &[WORKSPACE, &[PATH]],
        action: Exchange,
        examples: "cofferdam workspace stat $ID work/main.py",
    },
    WorkspaceVerb {
        name: "mv",
        about: "Move a file or directory",
        method: Method::POST,
        path: "/v1/workspaces/{id}/move",
        keys: &[
            WORKSPACE,
            &[
                VerbKey::word("from", Body, Text, "The path now"),
                VerbKey::word("to", Body, Text, "The path afterwards"),
                VerbKey::option("overwrite", "overwrite", Body, Flag, "Replace what is there"),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace mv $ID work/a.txt out/a.txt --overwrite",
    },
    WorkspaceVerb {
        name: "del",
        about: "Delete a file or directory",
        method: Method::DELETE,
        path: "/v1/workspaces/{id}/files",
        keys: &[
            WORKSPACE,
            &[
                PATH,
                VerbKey::option("recursive", "recursive", Query, Flag, "With all that is in it"),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace del $ID work/cache --recursive",
    },
    WorkspaceVerb {
        name: "stage-dir",
        about: "Replace a directory by one of this host, of the service's host or of the store",
        method: Method::POST,
        path: "/v1/workspaces/{id}/stage-directory",
        keys: &[
            WORKSPACE,
            &[
                VerbKey::word(
                    "dir",
                    Source,
                    Upload,
                    "A directory here, or host:///DIR at the service",
                )
                .keyed("src")
                .unless("digest"),
                INTO,
                VerbKey::option("digest", "digest", Body, Id, "The digest of a stored skill"),
                VerbKey::option(
                    "read-only",
                    "read_only",
                    Body,
                    Flag,
                    "Programs cannot write to it",
                ),
                VerbKey::option(
                    "allow-mount",
                    "allow_mount",
                    Body,
                    Flag,
                    "One copy for all workspaces",
                ),
            ],
        ],
        action: Send,
        examples: "cofferdam workspace stage-dir $ID ./skills/plot skills/plot --read-only",
    },
    WorkspaceVerb {
        name: "stage",
        about: "Bring inputs into a workspace, all or none",
        method: Method::POST,
        path: "/v1/workspaces/{id}/stage",
        keys: &[
            WORKSPACE,
            &[VerbKey::word("file", Body, JsonFile, "The inputs, as JSON; `-` for stdin")
                .keyed("inputs")],
        ],
        action: Exchange,
        examples: "echo '[{\"from\": \"artifact://report.html\"}]' | cofferdam workspace stage $ID -",
    },
    WorkspaceVerb {
        name: "collect",
        about: "Print the files that match patterns, or save them",
        method: Method::POST,
        path: "/v1/workspaces/{id}/collect",
        keys: &[
            WORKSPACE,
            &[
                VerbKey::word("pattern", Body, Texts, "A pattern of paths")
                    .keyed("patterns")
                    .unless("spec"),
                VerbKey::option(
                    "spec",
                    "spec",
                    WholeBody("/v1/workspaces/{id}/collect-outputs"),
                    JsonFile,
                    "What to collect and save, as JSON; `-` for stdin",
                ),
            ],
        ],
        action: Exchange,
        examples: "cofferdam workspace collect $ID 'out/**'\n\
            echo '{\"globs\": [\"out/**\"], \"save\": true}' | cofferdam workspace collect $ID --spec -",
    },
];
