//! Fake programs for tests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::program::{PATH_DIRECTORIES, ProgramFinder, ResolvedProgram};
use super::shell::WRAPPERS;
use super::{PolicyConfig, PolicyOutcome, WorkspaceFacts, WorkspaceRoots, evaluate};
use crate::egress::AllowList;
use cofferdam_core::job::{RunJobRequest, Sha256, ValidRequest};
use cofferdam_core::values::digest::sha256_of;

/// A program found at `path`, whose file is `target`. Its contents are the path of the file.
pub fn program(path: &str, target: &str) -> ResolvedProgram {
    let sha256 = digest_of(target);
    ResolvedProgram { path: path.to_owned(), target: target.to_owned(), sha256 }
}

/// The digest of the program whose file is `target`.
pub fn digest_of(target: &str) -> Sha256 {
    Sha256::parse(&sha256_of(target.as_bytes())).unwrap()
}

/// Paths, each with the path that it links to, or itself.
#[derive(Debug, Clone, Default)]
pub struct FakePrograms(pub BTreeMap<String, String>);

impl FakePrograms {
    fn at(&self, path: &str) -> Option<ResolvedProgram> {
        let mut target = self.0.get(path)?;
        while let Some(next) = self.0.get(target).filter(|next| *next != target) {
            target = next;
        }
        Some(program(path, target))
    }
}

impl ProgramFinder for FakePrograms {
    fn find(&self, name: &str) -> Result<Option<ResolvedProgram>, String> {
        if name.starts_with('/') {
            return Ok(self.at(name));
        }
        assert!(!name.contains('/'), "{name} was looked up");
        let mut paths = PATH_DIRECTORIES.iter().map(|directory| format!("{directory}/{name}"));
        Ok(paths.find_map(|path| self.at(&path)))
    }
}

/// A root file system with the usual links: `/bin` is `/usr/bin`, and `foo` is a link to a shell.
pub fn usual() -> FakePrograms {
    let mut links = BTreeMap::new();
    let own = |name: &str| (format!("/usr/bin/{name}"), format!("/usr/bin/{name}"));
    for name in ["bash", "dash", "busybox", "python3.11", "node", "ls", "echo", "tool", "coreutils"]
    {
        links.extend([own(name)]);
    }
    links.extend(WRAPPERS.split_ascii_whitespace().map(own));
    for (name, target) in [
        ("sh", "dash"),
        ("python3", "python3.11"),
        ("python", "python3"),
        ("ash", "busybox"),
        ("linux32", "setarch"),
        ("wrap", "env"),
        ("genv", "tool"),
        ("gnuenv", "tool"),
        ("tac", "coreutils"),
    ] {
        links.insert(format!("/usr/bin/{name}"), format!("/usr/bin/{target}"));
    }
    let merged: Vec<_> = links.keys().cloned().collect();
    for path in merged {
        links.insert(path.replace("/usr/bin/", "/bin/"), path);
    }
    for (path, target) in [
        ("/usr/local/bin/foo", "/usr/bin/bash"),
        ("/opt/tool/bin/tool", "/opt/tool/bin/tool"),
        ("/opt/tool/bin/python", "/opt/tool/bin/python"),
        ("/opt/link", "/usr/bin/python3.11"),
        ("/lib64/ld-linux-x86-64.so.2", "/lib64/ld-linux-x86-64.so.2"),
    ] {
        links.insert(path.to_owned(), target.to_owned());
    }
    FakePrograms(links)
}

/// A request for `argv` that allows `commands` (in the JSON form) and nothing else.
pub fn request(argv: &[&str], commands: &Value) -> RunJobRequest {
    let request = json!({
        "workspace": { "source": "local_path", "path": "/home/me/project" },
        "command": { "argv": argv },
        "policy": { "allowed_commands": commands },
    });
    let request: RunJobRequest = serde_json::from_value(request).unwrap();
    ValidRequest::try_from(request.clone()).unwrap();
    request
}

/// A runner that allows any workspace and no variables.
pub fn open_runner() -> PolicyConfig {
    PolicyConfig {
        allowed_env: BTreeSet::new(),
        roots: WorkspaceRoots::Any,
        network_hosts: AllowList::default(),
    }
}

/// Evaluates `request` with the usual programs.
pub fn outcome_of(request: &RunJobRequest) -> PolicyOutcome {
    evaluate(request, &open_runner(), WorkspaceFacts::default(), &usual())
}

/// The code of the error, or `allowed`.
pub fn verdict(outcome: &PolicyOutcome) -> &'static str {
    outcome.error.as_ref().map_or("allowed", |error| error.code.word())
}
