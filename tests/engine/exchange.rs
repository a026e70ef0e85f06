//! Requests with any bytes, each on a connection of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub use cofferdam_test_server::exchange::{Reply, reply, try_ask};
use cofferdam_test_server::service::{Service, Setup, cofferdam};

/// The tokens of a service with tokens.
pub const TOKENS: [(&str, &str); 2] =
    [("one", "the-token-of-client-one"), ("two", "the-token-of-client-two")];

/// A service whose engine keeps things in `directory`.
pub fn engine_server(directory: &Path) -> Setup {
    // At its end the service would wait the default 30 s for the programs that a test leaves.
    Setup::shell().env("ENGINE_STORE_DIR", directory).env("SHUTDOWN_GRACE", "200ms")
}

/// Sends a request with a body. `headers` are whole lines.
#[track_caller]
pub fn ask(service: &Service, method: &str, target: &str, headers: &str, body: &[u8]) -> Reply {
    try_ask(service.address, method, target, headers, body).unwrap()
}

/// Runs `cofferdam` with these words and this stdin.
pub fn command_line(words: &[&str], stdin: &[u8], variables: &[(&str, &str)]) -> Output {
    let mut child = Command::new(cofferdam())
        .args(words)
        .env_remove("COFFERDAM_SERVER")
        .envs(variables.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that fails early does not read it.
    let _ = child.stdin.take().unwrap().write_all(stdin);
    child.wait_with_output().unwrap()
}

/// A file with `token`, which only its owner can read.
pub fn token_file(directory: &Path, token: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = directory.join(format!("token-{}", token.len()));
    std::fs::write(&path, token).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path
}
