//! The variables of Cases.

use super::egress::HOSTS_WANTED;
use super::evaluations::NETWORK_WANTED;
use super::variable::DefaultValue::Value;
use super::variable::{Variable, VariableGroup, group};

group! {
    /// What Cases reach, and what their provisioning sees.
    CASES: "Cases", "`cofferdam case` reads these, see [docs/cases.md](cases.md).";

    CASES_CLONE_NETWORK {
        example: "{\"rules\": {\"git.example.org\": [{\"methods\": [\"GET\", \"POST\"]}]}}",
        wanted: NETWORK_WANTED,
        meaning: "Rules over what git sends to the host of a repository, as in `EVAL_CLONE_NETWORK`.",
    }
    CASES_PROVISION_NETWORK {
        example: "/etc/cofferdam/provision.json",
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
}
