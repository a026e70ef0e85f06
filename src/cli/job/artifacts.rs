//! `cofferdam job artifacts`: lists the artifacts of a job, or fetches one.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use clap::Args;

use super::failure::JobFailure;
use super::output::print_json;
use super::query::parse_id;
use super::records::{ArtifactList, Records};
use super::target::Target;
use crate::cli::failure::{Failure, error_words};
use cofferdam_core::job::{Artifact, ErrorCode, JobError, JobId};
use cofferdam_core::values::digest::Digest;

/// Bytes read at a time.
const BUFFER_BYTES: usize = 64 << 10;

const EXAMPLES: &str = "\
Examples:
  cofferdam job artifacts job_1
  cofferdam job artifacts job_1 --get out/report.html --to report.html
  cofferdam job artifacts job_1 --get out/table.csv --server http://127.0.0.1:4040 | head

The SHA-256 of a fetched artifact is checked: FILE has the right contents, or is not created.
Exit codes: 0; 1 no such job or artifact, or the job has not ended; 2 usage";

/// Lists the artifacts of a job, or fetches one.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ArtifactsCommand {
    /// The job
    #[arg(value_name = "ID")]
    id: String,
    /// The artifact to fetch, by its listed path
    #[arg(long, value_name = "PATH")]
    get: Option<String>,
    /// The file to write [default: stdout]
    #[arg(long, value_name = "FILE", requires = "get")]
    to: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

impl ArtifactsCommand {
    /// Prints the list, or fetches the artifact.
    pub fn run(self) -> Result<u8, JobFailure> {
        let Self { id, get, to, target } = self;
        let id = parse_id(&id)?;
        let records = target.records()?;
        let artifacts = records.artifacts(&id)?;
        match get {
            None => print_json(&ArtifactList { artifacts })?,
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
) -> Result<(), JobFailure> {
    let source = records.open_artifact(id, artifact)?;
    let Some(to) = to else {
        return match copy(source, &mut io::stdout().lock(), artifact) {
            // A closed pipe is not an error.
            Err(ArtifactCopyError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Ok(())
            }
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
        // Leave no incomplete file.
        let _ = fs::remove_file(&part);
    }
    placed
}

/// The temporary name of a file until it is complete.
fn part_of(to: &Path) -> PathBuf {
    let mut name = to.as_os_str().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    name.into()
}

/// Why an artifact was not copied.
#[derive(Debug)]
enum ArtifactCopyError {
    Read(io::Error),
    Write(io::Error),
    /// It differs from the list.
    Other(&'static str),
}

impl ArtifactCopyError {
    fn into_fault(self, to: &str) -> JobFailure {
        let words = match self {
            Self::Read(error) => format!("read artifact: {error}"),
            Self::Write(error) => return Failure::option("--to", format!("{to}: {error}")).into(),
            Self::Other(words) => format!("artifact: {words}"),
        };
        JobError::new(ErrorCode::IoFailed, words).into()
    }
}

/// Copies the artifact; fails unless its length and digest match the list.
fn copy(
    mut source: impl Read,
    to: &mut impl Write,
    listed: &Artifact,
) -> Result<(), ArtifactCopyError> {
    let (mut digest, mut total) = (Digest::default(), 0_u64);
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = match source.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(ArtifactCopyError::Read(error)),
        };
        let piece = buffer.get(..count).unwrap_or_default();
        total = total.saturating_add(count as u64);
        if total > listed.bytes {
            return Err(ArtifactCopyError::Other("longer than listed"));
        }
        digest.update(piece);
        to.write_all(piece).map_err(ArtifactCopyError::Write)?;
    }
    to.flush().map_err(ArtifactCopyError::Write)?;
    match digest.finish() == listed.sha256.as_str() {
        true => Ok(()),
        false => Err(ArtifactCopyError::Other("its SHA-256 differs from the list")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_core::job::Sha256;
    use cofferdam_core::values::digest::sha256_of;

    #[test]
    fn an_artifact_that_differs_from_its_listing_is_an_error() {
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
            assert!(
                matches!(copied(source, b"abc"), Err(ArtifactCopyError::Other(_))),
                "{source:?}"
            );
        }
    }
}
