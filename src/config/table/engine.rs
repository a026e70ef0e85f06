//! The variables of the code executor engine.

use super::egress::HOSTS_WANTED;
use super::variable::DefaultValue::{InWords, Value};
use super::variable::{Variable, VariableGroup, group};

/// What a positive byte count looks like.
const BYTES: &str = "a byte count above 0, as 512MiB";
/// What a positive duration looks like.
const DURATION: &str = "a duration above zero, as 90m or 168h";
/// What a positive number looks like.
const COUNT: &str = "a whole number from 1";

group! {
    /// Whether there is an engine, where its store is, and how much of everything there may be.
    ENGINE_OF_AGENTS: "Engine", "The code executor engine: `/v1/workspaces`, `/v1/execute` and `/v1/artifacts`.";

    ENGINE {
        default: Value("on"),
        wanted: "on or off",
        meaning: "`off` disables the engine.",
    }
    ENGINE_STORE_DIR {
        default: Value("./cofferdam-engine"),
        example: "/var/lib/cofferdam/engine",
        wanted: "a directory",
        meaning: "Where everything that outlives the service is (`--engine-dir`).",
    }
    ENGINE_WORKSPACES_MAX {
        default: Value("1000"),
        wanted: COUNT,
        meaning: "Workspaces at once; one more is a 503.",
    }
    ENGINE_DISK_TOTAL {
        default: InWords("half of the smaller of the memory and the limit of the service's control group"),
        example: "8GiB",
        wanted: BYTES,
        meaning: "Bytes of all workspaces and snapshots in memory, with what workspaces in which a program runs may still write; more is a 503.",
    }
    ENGINE_RUNS_MAX {
        default: InWords("8 per CPU"),
        example: "32",
        wanted: "a whole number from 1 to 4096",
        meaning: "Programs of all workspaces at once; one more is a 503.",
    }
    ENGINE_KERNELS_MAX {
        default: Value("64"),
        wanted: COUNT,
        meaning: "Live kernels of contexts; one more ends the longest idle.",
    }
    ENGINE_TOKEN_WORKSPACES_MAX {
        default: InWords("no limit"),
        example: "100",
        wanted: COUNT,
        meaning: "Workspaces of one token; one more is a 429.",
    }
    ENGINE_TOKEN_RUNS_MAX {
        default: InWords("no limit"),
        example: "8",
        wanted: COUNT,
        meaning: "Programs of one token at once; one more is a 429.",
    }
    ENGINE_TOKEN_DISK_MAX {
        default: InWords("no limit"),
        example: "2GiB",
        wanted: BYTES,
        meaning: "Bytes of one token's workspaces, counted as for `ENGINE_DISK_TOTAL`; more is a 429.",
    }
    ENGINE_STORE_MAX {
        default: Value("16GiB"),
        wanted: BYTES,
        meaning: "Bytes of the store; more is a 507.",
    }
    ENGINE_SESSIONS_MAX {
        default: Value("32"),
        wanted: COUNT,
        meaning: "Sessions of one workspace; one more is a 429.",
    }
    ENGINE_CONTEXTS_MAX {
        default: Value("8"),
        wanted: COUNT,
        meaning: "Contexts of one workspace; one more is a 429.",
    }
    ENGINE_SNAPSHOTS_MAX {
        default: Value("1000"),
        wanted: COUNT,
        meaning: "Snapshots; one more is a 429.",
    }
    ENGINE_INPUT_MAX {
        default: Value("32MiB"),
        wanted: BYTES,
        meaning: "Bytes of a request in JSON.",
    }
    ENGINE_PARKED_KEEP {
        default: Value("720h"),
        wanted: DURATION,
        meaning: "How long a parked workspace is kept.",
    }
    ENGINE_ARTIFACT_MAX {
        default: Value("256MiB"),
        wanted: BYTES,
        meaning: "Bytes of one version of an artifact.",
    }
    ENGINE_SESSION_KEEP {
        default: Value("30m"),
        wanted: DURATION,
        meaning: "How long the log and the result of an ended session are kept.",
    }
    ENGINE_SAVE_EVERY {
        default: Value("5s"),
        wanted: DURATION,
        meaning: "How soon a workspace with `persist` is saved after a change.",
    }
    ENGINE_HOST_ROOTS {
        default: InWords("no directory"),
        example: "/srv/inputs",
        wanted: "absolute directories divided by colons",
        meaning: "Directories, separated by colons, below which `host://` inputs may be.",
    }
    ENGINE_NETWORK_HOSTS {
        example: "pypi.org,files.pythonhosted.org",
        wanted: HOSTS_WANTED,
        meaning: "Hosts that the programs of workspaces may ask to reach, divided by commas.",
        details: "Entries as `network` has them, see [docs/egress.md](egress.md).",
    }
    ENGINE_HOSTS_ALLOW {
        example: "10.1.2.3:8080",
        wanted: HOSTS_WANTED,
        meaning: "Hosts among them whose address need not be public.",
    }
}

group! {
    /// What a request gets if it names no value, and the largest that it may name.
    ENGINE_REQUESTS: "Limits of workspaces", "What a request gets that names no value or 0 (`…_DEFAULT`), and the most that it may name (`…_MAX`).";

    ENGINE_DISK_DEFAULT {
        default: Value("256MiB"),
        wanted: BYTES,
        meaning: "Bytes of a workspace, if the request names none.",
    }
    ENGINE_DISK_MAX {
        default: Value("4GiB"),
        wanted: BYTES,
        meaning: "Bytes of a workspace.",
    }
    ENGINE_INODES_DEFAULT {
        default: Value("65536"),
        wanted: COUNT,
        meaning: "Files and directories of a workspace, if the request names no number.",
    }
    ENGINE_INODES_MAX {
        default: Value("1000000"),
        wanted: COUNT,
        meaning: "Files and directories of a workspace.",
    }
    ENGINE_TTL_DEFAULT {
        default: Value("24h"),
        wanted: DURATION,
        meaning: "How long a workspace lives, if the request names no time.",
    }
    ENGINE_TTL_MAX {
        default: Value("720h"),
        wanted: DURATION,
        meaning: "How long a workspace lives.",
    }
    ENGINE_IDLE_DEFAULT {
        default: Value("30m"),
        wanted: DURATION,
        meaning: "How long an unused workspace lives, if the request names no time.",
    }
    ENGINE_IDLE_MAX {
        default: Value("24h"),
        wanted: DURATION,
        meaning: "How long an unused workspace lives.",
    }
    ENGINE_RUN_TIMEOUT_DEFAULT {
        default: Value("10s"),
        wanted: DURATION,
        meaning: "Wall-clock time of a program, if the request names none.",
    }
    ENGINE_RUN_TIMEOUT_MAX {
        default: Value("1h"),
        wanted: DURATION,
        meaning: "Wall-clock time of a program.",
    }
    ENGINE_SESSION_TIMEOUT_DEFAULT {
        default: Value("30m"),
        wanted: DURATION,
        meaning: "Wall-clock time of a session, if the request names none.",
    }
    ENGINE_SESSION_TIMEOUT_MAX {
        default: Value("24h"),
        wanted: DURATION,
        meaning: "Wall-clock time of a session.",
    }
    ENGINE_MEMORY_MB_DEFAULT {
        default: Value("768"),
        wanted: COUNT,
        meaning: "Memory of a program in MiB, if the request names none.",
    }
    ENGINE_MEMORY_MB_MAX {
        default: Value("2048"),
        wanted: COUNT,
        meaning: "Memory of a program in MiB.",
    }
    ENGINE_PIDS_DEFAULT {
        default: Value("256"),
        wanted: COUNT,
        meaning: "Processes and threads of a program, if the request names no number.",
    }
    ENGINE_PIDS_MAX {
        default: Value("1024"),
        wanted: COUNT,
        meaning: "Processes and threads of a program.",
    }
    ENGINE_OUTPUT_DEFAULT {
        default: Value("1MiB"),
        wanted: BYTES,
        meaning: "Bytes of stdout and of stderr that are kept, if the request names no number.",
    }
    ENGINE_OUTPUT_MAX {
        default: Value("16MiB"),
        wanted: BYTES,
        meaning: "Bytes of stdout and of stderr that are kept.",
    }
}
