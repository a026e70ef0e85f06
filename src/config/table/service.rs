//! The variables of the service and of runs.

use super::variable::DefaultValue::{InWords, Value};
use super::variable::{Variable, VariableGroup, group};

group! {
    /// Where the service listens and when it stops.
    LISTENING: "Listening", "";

    PORT {
        default: Value("4040"),
        wanted: "a port number",
        meaning: "Port on every address; `--addr HOST:PORT`, as `127.0.0.1:4040`, overrides it.",
    }
    METRICS_ADDR {
        example: "127.0.0.1:9404",
        wanted: "HOST:PORT, off, or nothing for the port of /run",
        meaning: "Where `GET /metrics` is: empty, on the port of `/run`; `off`, nowhere; `HOST:PORT`, on a separate listener.",
    }
    ALLOW_SHUTDOWN {
        default: Value("false"),
        wanted: "1 or true",
        meaning: "`1` or `true` enables `POST /shutdown`.",
    }
    SHUTDOWN_GRACE {
        default: Value("30s"),
        wanted: "a duration, as 500ms, 30s or 2m",
        meaning: "How long a drain waits before it kills runs; `TimeoutStopSec=` of a systemd unit must be longer.",
    }
}

group! {
    /// What the service accepts from clients.
    HTTP: "HTTP", "";

    HTTP_CONNECTIONS_MAX {
        default: Value("1024"),
        wanted: "a whole number from 1",
        meaning: "Connections at once.",
        details: "The service raises its soft limit of open files for them. If the hard limit is too low, the service reports at the start how many connections fit, and refuses to start if none does.",
    }
    HTTP_ORIGINS_ALLOW {
        example: "https://battle.example",
        wanted: "origins divided by commas, each as https://battle.example:8443 is written",
        meaning: "Origins, as `https://battle.example`, separated by commas, whose pages may post.",
        details: "A POST with any other `Origin` is a 403.",
    }
    HTTP_ORIGINS {
        example: "https://console.example",
        wanted: "origins divided by commas, each as https://battle.example:8443 is written",
        meaning: "Origins, as `https://console.example`, separated by commas, whose pages may attach to sessions by WebSocket.",
        details: "Loopback names and the address of the service are always allowed. Any other `Origin` is a 403.",
    }
    HTTP_HOSTS_ALLOW {
        example: "cofferdam.example",
        wanted: "names divided by commas, as cofferdam.example or *.example, without a port",
        meaning: "Host names, as `cofferdam.example` or `*.runs.example`, separated by commas, that clients may use without a token.",
        details: "Always allowed: addresses, `localhost`, names without a dot, names below `.localhost`, `.svc` and `.svc.cluster.local`. Any other `Host` is a 403.",
    }
    HTTP_BODIES_MAX {
        default: Value("64MiB"),
        wanted: "a byte count above 0, as 64MiB",
        meaning: "Bytes of all request bodies that are being read.",
        details: "Beyond it large bodies wait for each other, and one that has not grown for a second is a 503.",
    }
}

group! {
    /// Who may ask.
    TOKENS: "Tokens", "If either variable is set, every request but `/health` needs `Authorization: Bearer` with a token, or
is a 401. A listener of `METRICS_ADDR` needs no token.";

    AUTH_TOKEN {
        example: "as-long-and-random-as-can-be",
        wanted: "1 to 1024 visible characters of ASCII",
        meaning: "One token, as long and random as possible; its name is `default`.",
    }
    AUTH_TOKENS_FILE {
        example: "/etc/cofferdam.tokens",
        wanted: "a file that can be read",
        meaning: "A file of tokens, read at the start: a token per line, or a name and a token.",
        details: "`#` begins a comment. Workspaces and artifacts belong to a token's name; a token without one is named by its digest.",
    }
}

group! {
    /// What runs execute and see.
    WORKSPACES: "Workspaces", "";

    LANGS_DIR {
        default: InWords("`./langs`; else `.` as one workspace, if it has a Makefile; else the workspaces in the binary"),
        example: "/usr/local/share/cofferdam/langs",
        wanted: "a directory",
        meaning: "A directory with a workspace per slug (`--langs`).",
    }
    RUN_WORKSPACE {
        example: "/srv/workspace",
        wanted: "a directory",
        meaning: "One workspace for every slug (`--workspace`).",
    }
    SANDBOX_ROOTFS {
        default: InWords("the host's, masked"),
        example: "/var/cache/cofferdam/toolchains/root",
        wanted: "a directory",
        meaning: "Root file system of the sandboxes (`--rootfs`).",
    }
    ISOLATION {
        default: Value("best"),
        wanted: "best or strict",
        meaning: "`strict` refuses a host that lacks a control.",
    }
}

group! {
    /// How many runs, and how much each may use.
    RUNS: "Runs", "";

    RUN_CONCURRENCY {
        default: Value("10"),
        wanted: "a whole number from 1 to 4096",
        meaning: "Runs at once, at most 4096.",
    }
    STANDBY_MAX {
        default: InWords("`RUN_CONCURRENCY`"),
        example: "10",
        wanted: "a whole number from 0 to 4096",
        meaning: "Sandboxes prepared for runs like the latest ones; 0 for none.",
    }
    STANDBY_MEMORY_MAX {
        default: InWords("an eighth of the memory"),
        example: "2GiB",
        wanted: "a byte count above 0, as 512MiB",
        meaning: "Memory of all prepared sandboxes whose runtime is started ahead, together.",
    }
    PRESTART {
        default: Value("on"),
        wanted: "on or off",
        meaning: "`off` starts no runtime ahead of a run.",
    }
    RUN_TIMEOUT_MAX {
        default: Value("5m"),
        wanted: "a duration above zero, as 30s or 5m",
        meaning: "The longest timeout that a request may ask for.",
    }
    RUN_MEMORY_MAX {
        default: Value("768MiB"),
        wanted: "a byte count above 0, as 512MiB",
        meaning: "Memory of a run, including its files.",
    }
    RUN_PIDS_MAX {
        default: Value("256"),
        wanted: "a whole number from 1",
        meaning: "Processes and threads of a run.",
    }
    RUN_DISK_MAX {
        default: Value("512MiB"),
        wanted: "a byte count above 0, as 512MiB",
        meaning: "`/workspace`, `/tmp` and everything else that a run can write, together.",
    }
    RUN_FILE_MAX {
        default: Value("64MiB"),
        wanted: "a byte count above 0, as 512MiB",
        meaning: "Size of one file.",
    }
    RUN_CPUS {
        default: InWords("no limit"),
        example: "1.5",
        wanted: "a number of CPUs above 0, as 1.5",
        meaning: "CPUs of a run, as `1.5`.",
    }
    RUN_INPUT_MAX {
        default: Value("1048576"),
        wanted: "a byte count, or 0 for no limit",
        meaning: "Bytes of a request body; 0 for no limit.",
    }
    RUN_OUTPUT_MAX {
        default: Value("1048576"),
        wanted: "a byte count, or 0 for no limit",
        meaning: "Bytes of stdout and of stderr; 0 for no limit.",
        details: "Without a limit a stream passes on 16 MiB per second.",
    }
    RUN_ENV_ALLOW {
        example: "LANG",
        wanted: "names divided by commas or spaces",
        meaning: "Names of the service's variables that runs see.",
    }
    RUN_WRITABLE_PATHS {
        default: InWords("of `/opt/cargo`, `/opt/cargo-target`, `/opt/go/cache`, `/opt/go/mod`, `/opt/nuget` those that exist"),
        example: "/opt/cargo-target:/opt/go/cache",
        wanted: "absolute paths divided by colons",
        meaning: "Directories of the root, separated by colons, that every run can write to.",
        details: "Each run writes to a layer of its own, which counts as its disk. Needs privileges.",
    }
    RUN_ON_DISCONNECT {
        default: Value("kill"),
        wanted: "kill or finish",
        meaning: "`kill` ends the run of a client that disconnects; `finish` lets the run outlive its client.",
        details: "A client that only closes its sending side counts as disconnected after 100 ms.",
    }
}

group! {
    /// What is logged.
    LOGS: "Logs", "";

    RUST_LOG {
        default: Value("info"),
        wanted: "a log level",
        meaning: "Log level.",
        details: "`warn` omits the line of each run (`run ended`, with its outcome, times and memory) and of each refusal (at most 100 per second).",
    }
    LOG_FORMAT {
        default: Value("text"),
        wanted: "text or json",
        meaning: "`json` logs a JSON object per line.",
        details: "It has `time`, `level`, `target`, `message`, `request_id` and the fields.",
    }
    DEBUG {
        example: "1",
        wanted: "anything but 0 or false",
        meaning: "If set, and neither `0` nor `false`, request headers are logged.",
        details: "Headers that may be secret (`authorization`, `cookie`, names with `token`, `key` and the like) and queries are redacted.",
    }
}
