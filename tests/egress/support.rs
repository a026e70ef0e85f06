//! What several of these tests need.

use std::io::Write;
use std::process::{Command, Stdio};

use nix::unistd::geteuid;

/// Whether sandboxes are possible, which `REQUIRE_PRIVILEGED=1` demands.
pub fn is_privileged() -> bool {
    let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
    assert!(geteuid().is_root() || !required, "not root, and REQUIRE_PRIVILEGED=1");
    if !geteuid().is_root() {
        eprintln!("SKIP: not root");
    }
    geteuid().is_root()
}

/// The SHA-256 of `text` in hexadecimal digits.
pub fn sha256(text: &str) -> String {
    let mut sum = Command::new("sha256sum");
    let mut sum = sum.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    sum.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let printed = String::from_utf8(sum.wait_with_output().unwrap().stdout).unwrap();
    printed.split(' ').next().unwrap().to_owned()
}
