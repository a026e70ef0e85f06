//! The variables of Cases.

use super::egress::HOSTS_WANTED;
use super::evaluations::NETWORK_WANTED;
use super::variable::DefaultValue::{InWords, Value};
use super::variable::{Variable, VariableGroup, group};

/// What a positive byte count looks like.
const BYTES: &str = "a byte count above 0, as 512MiB";

group! {
    /// What Cases reach, and what their provisioning sees.
    CASES_OF_AGENTS: "Cases", "`cofferdam case` and `/v1/cases` read these, see [docs/cases.md](cases.md).";

    CASES_CLONE_NETWORK {
        example: "{\"rules\": {\"git.example.org\": [{\"methods\": [\"GET\", \"POST\"]}]}}",
        wanted: NETWORK_WANTED,
        meaning: "Rules over what git sends to the host of a repository, as in `EVAL_CLONE_NETWORK`.",
    }
    CASES_PROVISION_NETWORK {
        example: "{\"rules\": {\"pypi.example.org\": [{\"methods\": [\"GET\"]}]}}",
        wanted: NETWORK_WANTED,
        meaning: "Rules over what provisioning sends, which may add credentials.",
    }
    CASES_PROVISION_ENV {
        default: Value(""),
        example: "PIP_RETRIES",
        wanted: "names of variables divided by commas",
        meaning: "Variables of the caller that provisioning sees, besides those that name indexes and certificates.",
    }
    CASES_HOSTS_ALLOW {
        example: "10.0.0.0/8",
        wanted: HOSTS_WANTED,
        meaning: "Hosts whose address need not be public. On the command line, those that the Case names need not be either.",
    }
    CASES_CACHE_MAX {
        default: Value("20GiB"),
        wanted: BYTES,
        meaning: "Bytes of cached repositories of Cases, and as many of caches of their containers.",
    }
}

group! {
    /// Cases of clients.
    CASES_OVER_HTTP: "Cases over HTTP", "`/v1/cases` alone, see [docs/cases.md](cases.md#over-http).";

    CASES {
        default: Value("on"),
        wanted: "on or off",
        meaning: "`off` disables `/v1/cases`.",
    }
    CASES_ROOTS {
        default: InWords("`JOBS_WORKSPACE_ROOTS`"),
        example: "/srv/cases",
        wanted: "absolute directories divided by colons",
        meaning: "Directories, separated by colons, below which requests may name Cases.",
    }
    CASES_WORKERS {
        default: InWords("one per CPU"),
        example: "2",
        wanted: "a whole number from 1 to 256",
        meaning: "Cells that run at once.",
    }
    CASES_QUEUE_MAX {
        default: Value("64"),
        wanted: "a whole number from 1 to 100000",
        meaning: "Runs of Cases that wait; one more is a 503.",
    }
    CASES_INPUT_MAX {
        default: Value("64MiB"),
        wanted: BYTES,
        meaning: "Bytes of a request, which may be the archive of a Case.",
    }
    CASES_EGRESS_ALLOW {
        example: "pypi.org,files.pythonhosted.org",
        wanted: HOSTS_WANTED,
        meaning: "Hosts that Cases may ask to reach, divided by commas; none unless set.",
    }
    CASES_HARNESS_ENV {
        default: Value(""),
        example: "MODEL_REGION",
        wanted: "names of variables divided by commas",
        meaning: "Variables of the service that secrets of harnesses may name by `{env: VARIABLE}`.",
    }
}
