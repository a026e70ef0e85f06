//! Our own sandbox in the two ways in which others are used: as a command and as a server.

use std::collections::HashMap;

use cofferdam_test_server::client::{Client, post, solution, solution_within};
use cofferdam_test_server::service::{Service, Setup, cofferdam};
use cofferdam_test_server::workspace::Workspace;

use super::commands::before;
use super::{Limits, Prepared, Sandbox};
use crate::bare;

const FILES: usize = 10;
const FILE_BYTES: usize = 4096;

pub fn exec(limits: Option<Limits>) -> Prepared {
    let more = match limits {
        Some(Limits { memory_mib, processes, cpu_seconds, wall_seconds }) => vec![
            format!("--memory={memory_mib}MiB"),
            format!("--pids={processes}"),
            format!("--cpu-time={cpu_seconds}s"),
            format!("--timeout={wall_seconds}s"),
        ],
        None => Vec::new(),
    };
    let more = more.into_iter().chain(["--".to_owned()]).collect();
    Ok(before(&[&cofferdam().to_string_lossy(), "exec"], more))
}

/// A service for each program, whose workspace has the program as its recipe.
struct Served {
    limits: Option<Limits>,
    services: HashMap<Vec<String>, (Service, Client)>,
}

pub fn served(limits: Option<Limits>) -> Prepared {
    Ok(Box::new(Served { limits, services: HashMap::new() }))
}

impl Sandbox for Served {
    fn run(&mut self, program: &[&str]) -> Result<(), String> {
        let words = program.iter().map(|word| (*word).to_owned()).collect();
        let start = || {
            let service = setup(program, self.limits).start();
            let client = service.connect();
            (service, client)
        };
        let (_service, client) = self.services.entry(words).or_insert_with(start);
        // It bounds the CPU time of each process too, which has no limit of its own.
        let body = self.limits.map_or_else(
            || solution(""),
            |limits| solution_within(&format!("{}s", limits.wall_seconds), ""),
        );
        let answer = client.ask(post("", body.to_string()));
        let has_succeeded = answer.status == 200 && answer.body.starts_with(r#"{"exit_code":0,"#);
        has_succeeded.then_some(()).ok_or(answer.body)
    }
}

fn setup(program: &[&str], limits: Option<Limits>) -> Setup {
    let setup = Setup::of(workspace(program));
    match limits {
        Some(Limits { memory_mib, processes, .. }) => setup
            .env("RUN_MEMORY_MAX", format!("{memory_mib}MiB"))
            .env("RUN_PIDS_MAX", processes.to_string()),
        None => setup,
    }
}

/// A recipe is one line without a dollar. Other programs are in a script.
fn workspace(program: &[&str]) -> Workspace {
    let quoted = program.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''")));
    let quoted = quoted.collect::<Vec<_>>().join(" ");
    let is_plain = |word: &&str| {
        word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._".contains(&byte))
    };
    if program.iter().all(is_plain) {
        bare::workspace(&program.join(" "), FILES, FILE_BYTES)
    } else if quoted.contains(['\n', '$']) {
        let script = format!("exec {quoted}\n");
        bare::workspace("exec sh ./program.sh", FILES, FILE_BYTES).with("program.sh", &script)
    } else {
        bare::workspace(&quoted, FILES, FILE_BYTES)
    }
}
