//! `cofferdam job artifacts`: what a job has left, and one of these as a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use serde::Serialize;

use super::super::failure::{Failure, error_words};
use super::fault::Fault;
use super::look::named;
use super::output::print;
use super::place::Place;
use super::records::Records;
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId};
use cofferdam_core::values::digest::Digest;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  cofferdam job artifacts job_1
  cofferdam job artifacts job_1 --get out/report.html --to report.html
  cofferdam job artifacts job_1 --get out/table.csv --server http://127.0.0.1:4040 | head

What is fetched is held to its SHA-256: FILE is there with the right contents, or not at all.
Exit codes: 0; 1 no such job or artifact, or the job is not over yet; 2 usage";

/// Lists what a job has left, or fetches one of it.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Artifacts {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    /// The artifact to fetch, as it is listed
    #[arg(long, value_name = "PATH")]
    get: Option<String>,
    /// Where to [default: stdout]
    #[arg(long, value_name = "FILE", requires = "get")]
    to: Option<PathBuf>,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Serialize)]
struct ArtifactList {
    artifacts: Vec<Artifact>,
}

impl Artifacts {
    /// Prints the list, or fetches.
    pub fn run(self) -> Result<u8, Fault> {
        let Self { id, get, to, place } = self;
        let id = named(&id)?;
        let records = place.records()?;
        let artifacts = records.artifacts(&id)?;
        match get {
            None => print(&ArtifactList { artifacts })?,
            Some(path) => {
                let listed = artifacts.into_iter().find(|artifact| artifact.path == path);
                let no_such = || JobError::new(ErrorCode::JobNotFound, "no such artifact");
                let artifact = listed.ok_or_else(|| no_such().with("path", path))?;
                fetch(&*records, &id, &artifact, to.as_deref())?;
            }
        }
        Ok(0)
    }
}

fn fetch(
    records: &dyn Records,
    id: &JobId,
    artifact: &Artifact,
    to: Option<&Path>,
) -> Result<(), Fault> {
    let source = records.open_artifact(id, artifact)?;
    let Some(to) = to else {
        return match copy(source, &mut io::stdout().lock(), artifact) {
            // A reader that has gone has read enough.
            Err(Copying::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            copied => copied.map_err(|fault| fault.into_fault("stdout")),
        };
    };
    let part = part_of(to);
    let name = to.display().to_string();
    let fault =
        |error: &io::Error| Failure::option("--to", format!("{name}: {}", error_words(error)));
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&part)
        .map_err(|error| fault(&error))?;
    let copied = copy(source, &mut file, artifact).map_err(|fault| fault.into_fault(&name));
    let placed = copied.and_then(|()| Ok(fs::rename(&part, to).map_err(|error| fault(&error))?));
    if placed.is_err() {
        // What is half there is nothing.
        let _ = fs::remove_file(&part);
    }
    placed
}

/// Where a file is until it is whole.
fn part_of(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    name.into()
}

/// Why an artifact was not copied.
#[derive(Debug)]
enum Copying {
    Read(io::Error),
    Write(io::Error),
    /// It is not what is listed.
    Other(&'static str),
}

impl Copying {
    fn into_fault(self, to: &str) -> Fault {
        let words = match self {
            Self::Read(error) => format!("read artifact: {error}"),
            Self::Write(error) => return Failure::option("--to", format!("{to}: {error}")).into(),
            Self::Other(words) => format!("artifact: {words}"),
        };
        JobError::new(ErrorCode::IoFailed, words).into()
    }
}

/// Copies what is listed, no more and no less.
fn copy(mut source: impl Read, to: &mut impl Write, listed: &Artifact) -> Result<(), Copying> {
    let (mut digest, mut total) = (Digest::default(), 0_u64);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(Copying::Read(error)),
        };
        let piece = buffer.get(..count).unwrap_or_default();
        total = total.saturating_add(count as u64);
        if total > listed.bytes {
            return Err(Copying::Other("longer than it is listed"));
        }
        digest.update(piece);
        to.write_all(piece).map_err(Copying::Write)?;
    }
    to.flush().map_err(Copying::Write)?;
    match digest.finish() == listed.sha256.as_str() {
        true => Ok(()),
        false => Err(Copying::Other("its SHA-256 is not the one listed")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::job::Sha256;
    use cofferdam_core::values::digest::sha256_of;

    #[test]
    fn what_is_not_what_is_listed_is_told() {
        let listed = |text: &[u8]| Artifact {
            path: "a".to_owned(),
            bytes: text.len() as u64,
            sha256: Sha256::parse(&sha256_of(text)).unwrap(),
            uri: String::new(),
            truncated: false,
        };
        let copied = |source: &[u8], text: &[u8]| {
            let mut out = Vec::new();
            copy(source, &mut out, &listed(text)).map(|()| out)
        };
        assert_eq!(copied(b"abc", b"abc").unwrap(), b"abc");
        for source in [&b"ab"[..], b"abd", b"abcd", b""] {
            assert!(matches!(copied(source, b"abc"), Err(Copying::Other(_))), "{source:?}");
        }
    }
}
