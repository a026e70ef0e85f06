//! Parses the output of `strace -ff -ttt`: the caller and time of each call.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A thread of the server or the command.
    Ours,
    /// The init of a sandbox, or the program's process before its exec.
    Box,
}

/// One call.
#[derive(Debug)]
pub struct Call {
    pub caller: Caller,
    pub name: String,
    /// Since the epoch, seconds.
    pub at: f64,
}

/// All calls of the server and its sandboxes, without those of the program itself.
#[derive(Debug)]
pub struct Trace {
    pub calls: Vec<Call>,
}

impl Trace {
    /// Reads the files in `directory`, one per thread and named after it. `threads` are those of
    /// the server. If it is empty, the thread that begins with the exec of the server is its first.
    pub fn read(directory: &Path, threads: &[i32]) -> Self {
        let files = fs::read_dir(directory).unwrap().flatten().filter_map(|file| {
            let thread = file.path().extension()?.to_str()?.parse().ok()?;
            // A string argument may not be UTF-8.
            let bytes = fs::read(file.path()).ok()?;
            Some((thread, String::from_utf8_lossy(&bytes).into_owned()))
        });
        let texts: HashMap<i32, String> = files.collect();
        let ours = our_threads(&texts, threads);
        let calls = texts.iter().flat_map(|(thread, text)| {
            let caller = if ours.contains(thread) { Caller::Ours } else { Caller::Box };
            calls_of(caller, text)
        });
        Self { calls: calls.collect() }
    }
}

/// The given threads and all that they started.
fn our_threads(texts: &HashMap<i32, String>, threads: &[i32]) -> HashSet<i32> {
    let mut unread: Vec<i32> = threads.to_vec();
    if unread.is_empty() {
        let first_is_exec = |text: &str| text.lines().next().is_some_and(is_exec);
        unread.extend(texts.iter().filter(|(_, text)| first_is_exec(text)).map(|(id, _)| *id));
    }
    let mut ours = HashSet::new();
    while let Some(thread) = unread.pop() {
        if ours.insert(thread) {
            let text = texts.get(&thread).map_or("", String::as_str);
            unread.extend(text.lines().filter_map(started_thread));
        }
    }
    ours
}

/// The thread that this call started, if any.
fn started_thread(line: &str) -> Option<i32> {
    line.contains("CLONE_THREAD").then(|| line.rsplit_once("= ")?.1.trim().parse().ok())?
}

fn is_exec(line: &str) -> bool {
    name_and_time(line).is_some_and(|(name, _)| name == "execve")
}

/// The calls of one thread. A process of a sandbox becomes the program at its first successful exec
/// by name. The init is executed in another way.
fn calls_of(caller: Caller, text: &str) -> Vec<Call> {
    let mut calls = Vec::new();
    for line in text.lines() {
        if let Some((name, at)) = name_and_time(line) {
            calls.push(Call { caller, name: name.to_owned(), at });
        }
        if caller == Caller::Box && is_exec(line) && line.ends_with("= 0") {
            break;
        }
    }
    calls
}

/// `None` if the line reports a signal or an exit.
fn name_and_time(line: &str) -> Option<(&str, f64)> {
    let (at, call) = line.split_once(' ')?;
    let (name, _) = call.trim_start().split_once('(')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    (!name.is_empty() && name.chars().all(is_name)).then_some((name, at.parse().ok()?))
}
