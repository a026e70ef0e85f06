//! Runs one job as a library: a program over a private copy of a directory, in a sandbox of its own.
//!
//! `cargo run --example run_job`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::fs;
use std::io::{self, Write};

use cofferdam::jobs::{JobStatus, RunJobRequest, Runner, ValidRequest, enter_user_namespace};
use serde_json::json;

const PROGRAM: &str = "\
import os
os.mkdir('out')
with open('out/answer.txt', 'w') as answer:
    answer.write('42\\n')
print('hello from', os.getcwd())
";

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

/// Creates a workspace, runs the program in it and writes its output and artifacts to `out`.
fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let workspace = place.path().join("workspace");
    fs::create_dir(&workspace)?;
    fs::write(workspace.join("main.py"), PROGRAM)?;

    let runner = Runner::builder(place.path().join("store")).roots([&workspace]).build()?;
    let request: RunJobRequest = serde_json::from_value(json!({
        "workspace": {"source": "local_path", "path": workspace},
        "command": {"argv": ["python3", "main.py"]},
        "policy": {"allowed_commands": ["python3"], "artifacts": {"include": ["out/**"]}},
        "limits": {"timeout_ms": 10_000, "memory_bytes": 256 << 20},
    }))?;
    let result = runner.run(ValidRequest::try_from(request)?)?;

    if result.status != JobStatus::Completed {
        return Err(format!("{}: {:?}", result.status.word(), result.error).into());
    }
    write!(out, "{}", result.stdout.text)?;
    for artifact in &result.artifacts {
        writeln!(out, "{}: {} bytes at {}", artifact.path, artifact.bytes, artifact.uri)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_writes_the_output_and_the_artifact_of_its_job() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0], "hello from /workspace");
        assert!(lines[1].starts_with("out/answer.txt: 3 bytes at file:///"), "{text}");
    }
}
