//! Finds a text wherever programs may have it, however it is written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use cofferdam_test_server::host::descendants;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tempfile::TempDir;

/// The largest part of a process's memory that is read at a time.
const MEMORY_READ_BYTES: usize = 1 << 20;
/// Where programs of a sandbox can write, and what only they see.
const SANDBOX_DIRECTORIES: [&str; 5] = ["run", "tmp", "dev/shm", "var/tmp", "etc"];

/// What encoders of URLs escape.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A search for some texts.
pub struct Search {
    directory: TempDir,
}

impl Search {
    pub fn new(texts: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let spellings: Vec<String> = texts.iter().flat_map(|text| spellings(text)).collect();
        fs::write(directory.path().join("patterns"), spellings.join("\n") + "\n").unwrap();
        Self { directory }
    }

    fn grep(&self, options: &str) -> Command {
        let mut grep = Command::new("grep");
        grep.env("LC_ALL", "C").arg(options).arg("-f").arg(self.directory.path().join("patterns"));
        grep.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        grep
    }

    /// Every spelling that was found in what `write` writes, as often as it is there.
    fn written(&self, write: impl FnOnce(&mut dyn Write) + Send) -> Vec<String> {
        let mut child = self.grep("-aoF").spawn().unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut found = Vec::new();
        thread::scope(|scope| {
            scope.spawn(move || write(&mut stdin));
            stdout.read_to_end(&mut found).unwrap();
        });
        let ended = child.wait().unwrap();
        assert!(matches!(ended.code(), Some(0 | 1)), "{ended}");
        String::from_utf8_lossy(&found).lines().map(str::to_owned).collect()
    }

    pub fn in_bytes(&self, bytes: &[u8]) -> Vec<String> {
        self.written(|out| out.write_all(bytes).unwrap())
    }

    /// The files below `directory` that hold one, each with the spelling.
    pub fn in_files(&self, directory: &Path) -> Vec<String> {
        let output = self.grep("-raoF").args(["-D", "skip", "--"]).arg(directory).output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// What is found in the memory of a process that can be read.
    pub fn in_memory(&self, pid: i32) -> Vec<String> {
        self.written(|out| {
            // A process may end meanwhile.
            let _ = copy_memory(pid, out);
        })
    }

    /// What is found of every process below `service`: its environment, its arguments, its memory and its
    /// files.
    pub fn in_processes(&self, service: i32) -> Vec<(&'static str, Vec<String>)> {
        let processes = descendants(service);
        let of_all = |find: &dyn Fn(i32) -> Vec<String>| {
            processes.iter().flat_map(|process| find(process.pid)).collect()
        };
        let in_file = |name: &str, pid: i32| {
            self.in_bytes(&fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default())
        };
        let roots = |pid: i32| {
            let below = |directory: &str| PathBuf::from(format!("/proc/{pid}/root/{directory}"));
            let mut directories: Vec<PathBuf> = SANDBOX_DIRECTORIES.map(below).to_vec();
            // An init is in the root of the sandbox, which shows the host's files.
            let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            if cwd.parent().is_some() {
                directories.push(PathBuf::from(format!("/proc/{pid}/cwd/.")));
            }
            directories.iter().flat_map(|directory| self.in_files(directory)).collect()
        };
        vec![
            ("environment", of_all(&|pid| in_file("environ", pid))),
            ("arguments", of_all(&|pid| in_file("cmdline", pid))),
            ("memory", of_all(&|pid| self.in_memory(pid))),
            ("files", of_all(&roots)),
        ]
    }
}

/// Copies all maps of a process that can be read.
fn copy_memory(pid: i32, out: &mut dyn Write) -> std::io::Result<()> {
    let mut memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut piece = vec![0; MEMORY_READ_BYTES];
    for line in fs::read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        let mut words = line.split(' ');
        let (Some(range), Some(access)) = (words.next(), words.next()) else { continue };
        let Some((first, end)) = range.split_once('-') else { continue };
        let [first, end] = [first, end].map(|hex| u64::from_str_radix(hex, 16).unwrap());
        // The kernel's own pages cannot be read by this file.
        if !access.starts_with('r') || memory.seek(SeekFrom::Start(first)).is_err() {
            continue;
        }
        let mut left = end - first;
        while left > 0 {
            let want = piece.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let Ok(read @ 1..) = memory.read(&mut piece[..want]) else { break };
            out.write_all(&piece[..read])?;
            left -= read as u64;
        }
    }
    Ok(())
}

/// How `text` may be written: as it is, in JSON, percent-encoded, and in base64 at each alignment.
pub fn spellings(text: &str) -> BTreeSet<String> {
    let json = serde_json::to_string(text).unwrap();
    let percent = |escaped: &'static AsciiSet| utf8_percent_encode(text, escaped).to_string();
    let mut all = BTreeSet::from([
        text.to_owned(),
        json[1..json.len() - 1].to_owned(),
        percent(NON_ALPHANUMERIC),
        percent(&RESERVED),
    ]);
    for offset in 0..3 {
        let shifted = [&vec![0; offset][..], text.as_bytes()].concat();
        for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
            // What stands before and behind changes the first and the last characters.
            let (first, end) = ((offset * 8).div_ceil(6), shifted.len() * 8 / 6);
            all.insert(engine.encode(&shifted)[first..end].to_owned());
        }
    }
    all
}
