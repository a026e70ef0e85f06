//! Changes as a patch in git's format.
//!
//! git reads both sides of the changed files as a stream into a repository of its own, which has no
//! attributes, no work tree and no configuration, and compares the two commits.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::thread;

use super::changes::{ComparedTrees, FileChange, TreeChanges};
use super::entry::{FileForm, join, link_text, open_directory, open_file, split};
use super::error::PatchError;
use super::git::{GitPhase, failed};
use cofferdam_core::values::digest::sha256_of;
use cofferdam_core::{Outcome, RunReport, SetupFailure, StdinSource};

/// Imports both commits and prints the difference.
const SCRIPT: &str = "set -e
git init -q --bare /tmp/compared.git
cd /tmp/compared.git
git fast-import --quiet --done --date-format=raw
exec git diff-tree -p --binary --full-index --no-renames --no-color --no-ext-diff --no-textconv \
--src-prefix=a/ --dst-prefix=b/ refs/heads/before refs/heads/after";

/// A patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenPatch {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Their SHA-256, hexadecimal.
    pub sha256: String,
    /// How many files it changes.
    pub files: usize,
}

/// Writes `changes` as a patch.
///
/// # Errors
/// It is longer than `bytes_max`, or git failed or took too long.
pub fn write_patch(
    git: &GitPhase<'_>,
    trees: &ComparedTrees,
    changes: &TreeChanges,
    bytes_max: u64,
) -> Result<WrittenPatch, PatchError> {
    let (base, left) = (trees.base.as_fd(), trees.left.as_fd());
    let part = ComparedPart { base, left, prefix: Vec::new(), files: &changes.files };
    write_patch_by(|script, stdin, max| git.run(script, stdin, max), &[part], bytes_max)
}

/// Trees whose changes are a part of a patch.
#[derive(Debug)]
pub struct ComparedPart<'a> {
    /// The tree as it was.
    pub base: BorrowedFd<'a>,
    /// The tree as it is now.
    pub left: BorrowedFd<'a>,
    /// The directory of its paths in the patch.
    pub prefix: Vec<u8>,
    /// The changes.
    pub files: &'a BTreeMap<Vec<u8>, FileChange>,
}

/// Writes the changes of `parts`, whose prefixes differ, as one patch. `run` runs a script with git: its stdin,
/// and the bytes of its stdout.
///
/// # Errors
/// As [`write_patch`].
pub fn write_patch_by(
    run: impl FnOnce(&str, StdinSource, u64) -> Result<RunReport, PatchError>,
    parts: &[ComparedPart<'_>],
    bytes_max: u64,
) -> Result<WrittenPatch, PatchError> {
    let files = parts.iter().map(|part| part.files.len()).sum();
    if files == 0 {
        return Ok(WrittenPatch { bytes: Vec::new(), sha256: sha256_of(b""), files });
    }
    let setup = |error: io::Error| SetupFailure::from_io("stream of changes", &error);
    // A pipe's other end does not raise a signal when it is gone.
    let (theirs, ours) = UnixStream::pair().map_err(setup)?;
    let report = thread::scope(|scope| {
        let writer = thread::Builder::new()
            .name("changes".to_owned())
            .spawn_scoped(scope, move || write_stream(ours, parts))
            .map_err(setup)?;
        let report = run(SCRIPT, StdinSource::Copied(OwnedFd::from(theirs)), bytes_max)?;
        let written = writer.join().map_err(|_| io::Error::other("its thread died"));
        // If git has failed, its words say why.
        if report.outcome == (Outcome::Exited { code: 0 }) {
            written.and_then(|written| written).map_err(setup)?;
        }
        Ok::<_, PatchError>(report)
    })?;
    match report.outcome {
        Outcome::Exited { code: 0 } if report.stdout.truncated => {
            Err(PatchError::TooLarge { bytes_max })
        }
        Outcome::Exited { code: 0 } => {
            let bytes = report.stdout.bytes;
            Ok(WrittenPatch { sha256: sha256_of(&bytes), bytes, files })
        }
        _ => Err(failed("fast-import", &report)),
    }
}

fn write_stream(stream: UnixStream, parts: &[ComparedPart<'_>]) -> io::Result<()> {
    let mut out = BufWriter::with_capacity(128 << 10, stream);
    out.write_all(b"feature done\n")?;
    write_commit(&mut out, "before", parts, |part| part.base, |change| change.before)?;
    write_commit(&mut out, "after", parts, |part| part.left, |change| change.after)?;
    out.write_all(b"done\n")?;
    out.flush()
}

fn write_commit<'a>(
    out: &mut impl Write,
    branch: &str,
    parts: &[ComparedPart<'a>],
    root: impl Fn(&ComparedPart<'a>) -> BorrowedFd<'a>,
    form: impl Fn(&FileChange) -> Option<FileForm>,
) -> io::Result<()> {
    write!(out, "commit refs/heads/{branch}\ncommitter c <c> 0 +0000\ndata 0\n")?;
    for part in parts {
        for (path, change) in part.files {
            let Some(form) = form(change) else { continue };
            writeln!(out, "M {} inline {}", form.git_mode(), quoted(&join(&part.prefix, path)))?;
            write_contents(out, root(part), path, form)?;
        }
    }
    out.write_all(b"\n")
}

fn write_contents(
    out: &mut impl Write,
    root: BorrowedFd<'_>,
    path: &[u8],
    form: FileForm,
) -> io::Result<()> {
    let (parent, name) = split(path);
    let directory = open_directory(root, parent)?;
    if form == FileForm::Link {
        let text = link_text(directory.as_fd(), name)?;
        writeln!(out, "data {}", text.len())?;
        out.write_all(&text)?;
    } else {
        let file: File = open_file(directory.as_fd(), name)?;
        let bytes = file.metadata()?.len();
        writeln!(out, "data {bytes}")?;
        if io::copy(&mut file.take(bytes), out)? != bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    out.write_all(b"\n")
}

/// A path as fast-import reads it, with every byte that might mean something else in octal.
fn quoted(path: &[u8]) -> String {
    let quote = |byte: &u8| match byte {
        b'"' | b'\\' | ..0x20 | 0x7f.. => format!("\\{byte:03o}"),
        plain => char::from(*plain).to_string(),
    };
    format!("\"{}\"", path.iter().map(quote).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_quoted_byte_by_byte() {
        for (path, expected) in [
            (&b"a/b c"[..], r#""a/b c""#),
            (b"a\nb\"c\\", r#""a\012b\042c\134""#),
            (b"\xff\x7f", r#""\377\177""#),
        ] {
            assert_eq!(quoted(path), expected);
        }
    }
}
