//! Checks the documents: their commands run and print what they show, the configuration tables are
//! complete, and no link is broken.
//!
//! The info string of a fenced block selects its check:
//! - `sh`: run in order with `sh -eu` at the repository's root, must succeed;
//! - `text`: the output of the `sh` block before it, where `…` matches any text of one line;
//! - `sh server`: started in the background, ended by SIGTERM after the last block, exits with 0;
//! - `sh deploy`: run only by `make test-deploy`, with real or stand-in services;
//! - `sh ci`: not run, since it would run this test; each line must be a line of `.ci/run`;
//! - a language and a path: a file that `tests/languages` or `make test-metrics` creates and uses.
//!
//! Port 4040 in a document is replaced by a free port.

// The whole crate is a test; clippy must be told so.
#![cfg(test)]

use std::env;
use std::ffi::OsString;
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam::config::{configuration_page, environment_file, variables_help};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const START_WAIT: Duration = Duration::from_secs(30);
const STOP_WAIT: Duration = Duration::from_secs(40);
const PORT_IN_DOCUMENTS: &str = "4040";
/// The documents with fenced blocks, relative to the root.
const WITH_COMMANDS: [&str; 18] = [
    "README.md",
    "docs/artifacts.md",
    "docs/sessions.md",
    "docs/cases.md",
    "docs/deploy.md",
    "docs/egress.md",
    "docs/engine-cli.md",
    "docs/engine.md",
    "docs/evaluations.md",
    "docs/execute.md",
    "docs/http-api.md",
    "docs/jobs.md",
    "docs/languages.md",
    "docs/operations.md",
    "docs/performance.md",
    "docs/tasks.md",
    "docs/toolchains.md",
    "docs/trying.md",
];

#[derive(Debug, PartialEq, Eq)]
struct Block {
    info: String,
    /// The line of its opening fence, from 1.
    line: usize,
    text: String,
}

#[test]
fn the_commands_in_the_documents_print_the_documented_output() {
    for document in WITH_COMMANDS {
        run_blocks(document);
    }
}

fn run_blocks(document: &str) {
    let port = free_port();
    let mut servers = Vec::new();
    let mut printed: Option<Output> = None;
    let blocks = blocks(&read(document));
    assert!(!blocks.is_empty(), "{document} has no block");
    for block in &blocks {
        let place = format!("{document}:{}", block.line);
        match block.info.as_str() {
            "sh" => {
                let output = shell(&block.text, port).output().unwrap();
                assert!(output.status.success(), "{place}: {output:?}");
                printed = Some(output);
            }
            "text" => {
                let output = printed.take().unwrap_or_else(|| panic!("{place}: no sh before it"));
                let stdout = String::from_utf8(output.stdout).unwrap();
                assert!(fits(&block.text, &stdout), "{place}: it prints\n{stdout}");
            }
            "sh server" => servers.push(Server::start(&block.text, port)),
            "sh ci" | "sh deploy" => {}
            other => {
                assert!(names_a_file(other), "{place}: no test checks a block of kind {other:?}");
            }
        }
    }
    servers.into_iter().for_each(Server::stop);
}

fn names_a_file(info: &str) -> bool {
    info.split_once(' ').is_some_and(|(_, path)| path.contains(['.', '/']))
}

#[test]
fn the_ci_blocks_of_the_documents_match_the_ci_script() {
    let ci = read(".ci/run");
    let ci: Vec<&str> = ci.lines().map(str::trim_start).collect();
    for document in WITH_COMMANDS {
        for block in blocks(&read(document)).iter().filter(|block| block.info == "sh ci") {
            for command in block.text.lines() {
                assert!(ci.contains(&command), "{document}:{}: {command:?}", block.line);
            }
        }
    }
}

#[test]
fn the_commands_of_every_document_are_run() {
    for document in documents() {
        let name = document.strip_prefix(ROOT).unwrap().to_str().unwrap();
        // A block without a language is a diagram.
        let is_command = |block: &Block| !block.info.is_empty() && !names_a_file(&block.info);
        let has_commands = blocks(&read(name)).iter().any(is_command);
        assert!(!has_commands || WITH_COMMANDS.contains(&name), "{name}");
    }
}

#[test]
fn the_configuration_documents_match_the_table() {
    for (name, text) in [
        ("docs/configuration.md", configuration_page()),
        ("deploy/systemd/cofferdam.env", environment_file()),
    ] {
        if env::var_os("WRITE_DOCUMENTS").is_some() {
            fs::write(Path::new(ROOT).join(name), &text).unwrap();
        }
        let is_current = read(name) == text;
        assert!(is_current, "{name} differs from src/config/table; `make config-docs` writes it");
    }
    let output = shell("cofferdam serve --help", free_port()).output().unwrap();
    let help = String::from_utf8(output.stdout).unwrap();
    assert!(help.contains(&variables_help()), "cofferdam serve --help prints\n{help}");
}

#[test]
fn no_link_between_the_documents_is_broken() {
    let mut links = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            if target.contains("://") || target.starts_with('#') {
                continue;
            }
            let path = target.split('#').next().unwrap_or(target);
            let there = document.parent().unwrap().join(path).exists();
            assert!(there, "{}: {target} does not exist", document.display());
            links += 1;
        }
    }
    assert!(links > 0, "no links were found");
}

#[test]
fn only_an_ellipsis_matches_any_text_of_one_line() {
    let table = [
        ("a\n", "a\n", true),
        ("a\n", "a b\n", false),
        ("a …\n", "a b\n", true),
        ("…b\n", "a b\n", true),
        ("a … c … e\n", "a b c d e\n", true),
        ("a … c\n", "a b c d\n", false),
        ("a … c\n", "a b\n c\n", false),
        ("ab…ba\n", "aba\n", false),
        ("a\nb\n", "a\n", false),
    ];
    for (pattern, text, expected) in table {
        assert_eq!(fits(pattern, text), expected, "{pattern:?} {text:?}");
    }
}

/// The server of a `sh server` block.
struct Server(Child);

impl Server {
    fn start(command: &str, port: u16) -> Self {
        // exec: the signal must reach the server, not a shell.
        let mut shell = shell(&format!("exec {command}"), port);
        let mut server = Self(shell.stdout(Stdio::null()).spawn().unwrap());
        let deadline = Instant::now() + START_WAIT;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            assert_eq!(server.0.try_wait().unwrap(), None, "{command} ended");
            assert!(Instant::now() < deadline, "{command} does not listen");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn stop(mut self) {
        let pid = Pid::from_raw(i32::try_from(self.0.id()).unwrap());
        kill(pid, Signal::SIGTERM).unwrap();
        let deadline = Instant::now() + STOP_WAIT;
        let status = loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the server does not stop");
            thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "the server ended with {status}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Only after a failed check; otherwise the server has already stopped.
        if let Ok(None) = self.0.try_wait() {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// A shell for a block, with the binary first on its PATH.
fn shell(script: &str, port: u16) -> Command {
    let binary = env::var_os("COFFERDAM_BIN")
        .map_or_else(|| PathBuf::from(env!("CARGO_BIN_EXE_cofferdam")), PathBuf::from);
    let mut path: OsString = binary.parent().unwrap().into();
    path.push(":");
    path.push(env::var_os("PATH").unwrap());
    let mut command = Command::new("sh");
    command
        .args(["-eu", "-c"])
        .arg(script.replace(PORT_IN_DOCUMENTS, &port.to_string()))
        .current_dir(ROOT)
        .env("PATH", path)
        .stdin(Stdio::null())
        .process_group(0);
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap().port()
}

/// The fenced blocks of a document, in order.
fn blocks(markdown: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open = false;
    for (index, line) in markdown.lines().enumerate() {
        match (line.strip_prefix("```"), open) {
            (Some(info), false) => {
                let (info, text) = (info.to_owned(), String::new());
                blocks.push(Block { info, line: index + 1, text });
                open = true;
            }
            (Some(_), true) => open = false,
            (None, true) => {
                let block = blocks.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            (None, false) => {}
        }
    }
    assert!(!open, "a fence is not closed");
    blocks
}

/// Whether `text` matches `pattern` line by line. Ignores trailing white space:
/// a header line ends in CR, and a body may lack a final newline.
fn fits(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<&str>, Vec<&str>) =
        (pattern.trim_end().lines().collect(), text.trim_end().lines().collect());
    pattern.len() == text.len()
        && pattern.iter().zip(text).all(|(pattern, line)| line_fits(pattern, line.trim_end()))
}

fn line_fits(pattern: &str, line: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('…') else { return pattern == line };
    let Some(mut line) = line.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('…').unwrap_or(("", rest));
    for part in middle.split('…') {
        let Some(at) = line.find(part) else { return false };
        line = &line[at + part.len()..];
    }
    line.ends_with(last)
}

/// Every document of the project.
fn documents() -> Vec<PathBuf> {
    let directories = ["", "docs", "docs/adr"];
    directories.iter().flat_map(|name| markdown_in(&Path::new(ROOT).join(name))).collect()
}

fn markdown_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}
