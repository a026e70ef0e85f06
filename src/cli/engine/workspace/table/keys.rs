//! Keys that several verbs have.

use crate::cli::engine::workspace::verb::KeyKind::{
    Boolean, Bytes, BytesFile, Command, Count, Flag, Id, Integer, JsonFile, Millis, Text, Variables,
};
use crate::cli::engine::workspace::verb::{KeyPlace, VerbKey};

const BODY: KeyPlace = KeyPlace::Body;

/// A workspace.
pub const WORKSPACE: &[VerbKey] = &[VerbKey::id("id", "The workspace")];

/// A session of a workspace.
pub const SESSION: &[VerbKey] =
    &[VerbKey::id("id", "The workspace"), VerbKey::id("session", "The session")];

/// Which part of a list is wanted.
pub const PAGE: &[VerbKey] = &[
    VerbKey::option(
        "limit",
        "limit",
        KeyPlace::Query,
        Count,
        "The maximum number of entries [default: 100]",
    ),
    VerbKey::option(
        "cursor",
        "cursor",
        KeyPlace::Query,
        Text,
        "Continue after an earlier list, with its next_cursor",
    ),
];

/// Limits of a program.
pub const LIMITS: &[VerbKey] = &[
    VerbKey::option("cpu-percent", "limits.cpu_percent", BODY, Count, "CPU, percent of one"),
    VerbKey::option("memory-mb", "limits.memory_mb", BODY, Count, "Memory, MiB"),
    VerbKey::option("max-pids", "limits.max_pids", BODY, Count, "Processes and threads"),
    VerbKey::option("cpu-time-ms", "limits.cpu_time_ms", BODY, Millis, "CPU time of all processes"),
    VerbKey::option(
        "stdout-bytes",
        "limits.stdout_bytes",
        BODY,
        Bytes,
        "Bytes of stdout that are kept",
    ),
    VerbKey::option(
        "stderr-bytes",
        "limits.stderr_bytes",
        BODY,
        Bytes,
        "Bytes of stderr that are kept",
    ),
];

/// What a new workspace is like.
pub const CREATE: &[VerbKey] = &[
    VerbKey::option("exec-id", "exec_id", BODY, Text, "A label"),
    VerbKey::option(
        "acquire",
        "acquire",
        BODY,
        Flag,
        "Answer the live workspace with that label, if there is one",
    ),
    VerbKey::option(
        "sandbox",
        "sandbox",
        BODY,
        Text,
        "program (each has a sandbox of its own) or workspace (all share one)",
    ),
    VerbKey::option("path", "path", BODY, Text, "Where programs see it [default: /workspace]"),
    VerbKey::option(
        "network",
        "network",
        BODY,
        JsonFile,
        "What programs may reach, as JSON; `-` for stdin",
    ),
    VerbKey::option("isolated", "policy.isolated", BODY, Boolean, "Programs are always isolated"),
    VerbKey::option(
        "persist",
        "policy.persist",
        BODY,
        Boolean,
        "Keep the files when it is removed or the service restarts",
    ),
    VerbKey::option("storage", "policy.storage", BODY, Text, "memory or disk"),
    VerbKey::option(
        "max-disk-bytes",
        "policy.max_disk_bytes",
        BODY,
        Bytes,
        "The most bytes of its files",
    ),
    VerbKey::option("max-inodes", "max_inodes", BODY, Count, "The most files and directories"),
    VerbKey::option("env", "env", BODY, Variables, "A variable of all its programs; repeatable"),
    VerbKey::option("ttl-ms", "ttl_ms", BODY, Millis, "How long it lives"),
    VerbKey::option("idle-ms", "idle_ms", BODY, Millis, "How long it lives unused"),
    VerbKey::option(
        "app",
        "artifact_session.app",
        BODY,
        Text,
        "Its artifacts belong to this application",
    ),
    VerbKey::option(
        "user",
        "artifact_session.user",
        BODY,
        Text,
        "Its artifacts belong to this user",
    ),
    VerbKey::option(
        "session",
        "artifact_session.session",
        BODY,
        Text,
        "Its artifacts belong to this session",
    ),
];

/// The snapshot that a new workspace starts from.
pub const SNAPSHOT: &[VerbKey] =
    &[VerbKey::option("snapshot", "snapshot", BODY, Id, "Start with the files of this snapshot")];

/// A program and its surroundings.
pub const PROGRAM: &[VerbKey] = &[
    VerbKey::word("cmd", BODY, Command, "The program and its arguments"),
    VerbKey::option("env", "env", BODY, Variables, "A variable of the program; repeatable"),
    VerbKey::option("cwd", "cwd", BODY, Text, "Its working directory, made if missing"),
    VerbKey::option("stdin", "stdin", BODY, Text, "Its standard input").unless("stdin-file"),
    VerbKey::option(
        "stdin-file",
        "stdin",
        BODY,
        BytesFile,
        "A file with its standard input; `-` for stdin",
    ),
    VerbKey::option("encoding", "encoding", BODY, Text, "utf-8 or base64, of --stdin"),
    VerbKey::option("skill", "skill", BODY, Text, "The skill that it belongs to, its SKILL_NAME"),
    VerbKey::option("timeout-ms", "timeout_ms", BODY, Millis, "How long it may run"),
];

/// The terminal of a program.
pub const TERMINAL: &[VerbKey] = &[
    VerbKey::option("tty", "tty", BODY, Flag, "Give it a terminal"),
    VerbKey::option("cols", "cols", BODY, Count, "The width of the terminal [default: 80]"),
    VerbKey::option("rows", "rows", BODY, Count, "The height of the terminal [default: 24]"),
];

/// The lines of a session that are wanted.
pub const LINES: VerbKey =
    VerbKey::option("limit", "limit", BODY, Integer, "The maximum number of lines; 0 for all");
