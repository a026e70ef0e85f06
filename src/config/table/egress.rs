//! The variables of every way out of a sandbox.

use super::variable::DefaultValue::Value;
use super::variable::{Variable, VariableGroup, group};

/// What a list of hosts looks like.
pub const HOSTS_WANTED: &str =
    "hosts divided by commas, as example.org, *.example.org:443 or 10.0.0.0/8:80";

group! {
    /// What programs with a network may send and receive.
    EGRESS: "Egress", "Programs with a network, see [docs/egress.md](egress.md).";

    EGRESS_BYTES_MAX {
        default: Value("4GiB"),
        wanted: "a byte count above 0, as 512MiB",
        meaning: "Bytes that a job, an evaluation, or a workspace while it is live, may send and receive together.",
    }
    EXEC_HOSTS_ALLOW {
        example: "127.0.0.1,10.0.0.0/8",
        wanted: HOSTS_WANTED,
        meaning: "Hosts that a command of `cofferdam exec` may reach although their addresses are not public.",
    }
    EGRESS_CA_FILE {
        example: "/etc/cofferdam/ca.pem",
        wanted: "a file with certificates in PEM",
        meaning: "Certificates beside the system's that hosts with rules are verified by.",
    }
    SECRETS_FILE {
        example: "/etc/cofferdam/secrets.toml",
        wanted: "a file in TOML with a table for each secret, which others cannot read",
        meaning: "The secrets that requests may name, see [docs/egress.md](egress.md). SIGHUP reads it anew.",
    }
    SECRETS_FILE_MODE {
        example: "any",
        wanted: "any",
        meaning: "With `any` everybody on the host may read the file of secrets and the files that it names.",
    }
    EGRESS_LOG_PATHS {
        default: Value("off"),
        wanted: "on or off",
        meaning: "Whether the records of requests to hosts with rules have the path, never the query.",
    }
}
