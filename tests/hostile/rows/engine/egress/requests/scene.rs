//! Workspaces whose requests are judged by rules, and the hosts that these name.

use std::sync::Arc;

use cofferdam_test_server::recorded::RecordedHost;
use rustls::ServerConfig;
use serde_json::{Value, json};

use super::super::scene::run;
use crate::Unexercised;
use crate::engine::{EngineClient, Workspace};
use crate::target::{EGRESS_ADDRESS, Target};

/// Functions of Python that send requests which clients would not send.
const REQUESTS_CLIENT: &str = include_str!("client.py");
/// The value of the secret `key`.
pub const SECRET: &str = "sk-never-in-a-sandbox";
/// The variable with its placeholder begins with this.
pub const PLACEHOLDER: &str = "cofferdam_secret_";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A client of the engine of a service started here.
pub fn engine(target: &Target) -> Result<EngineClient, Unexercised> {
    target.own()?;
    target.engine()
}

/// A host that answers everything with `ok`.
pub fn plain_host() -> RecordedHost {
    RecordedHost::answering(EGRESS_ADDRESS, None, |_| OK.to_vec())
}

/// The same behind TLS.
pub fn tls_host(target: &Target) -> RecordedHost {
    RecordedHost::answering(EGRESS_ADDRESS, Some(tls(target, "http/1.1")), |_| OK.to_vec())
}

/// How a host that may be reached speaks TLS.
pub fn tls(target: &Target, protocol: &str) -> Arc<ServerConfig> {
    target.certificates().config(&EGRESS_ADDRESS.to_string(), &[protocol])
}

/// A workspace with that network.
#[track_caller]
pub fn ruled<'client>(client: &'client EngineClient, network: &Value) -> Workspace<'client> {
    client.create(&json!({"network": network}))
}

/// Runs a Python program with `client.py`.
#[track_caller]
pub fn attack(workspace: &Workspace<'_>, program: &str) -> Value {
    run(workspace, &format!("{REQUESTS_CLIENT}\n{program}"))
}

/// What the records of a result say of decisions: `status reason`.
pub fn verdicts(result: &Value) -> Vec<String> {
    let records = result["egress"].as_array().unwrap();
    let verdict = |record: &Value| {
        let reason = record["reason"].as_str().unwrap_or("-");
        format!("{} {reason}", record["status"])
    };
    records.iter().map(verdict).collect()
}
