//! Property of archives of tasks: what is accepted stays beneath its place and within its limits.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::{Component, PathBuf};

use nix::sys::memfd::{MFdFlags, memfd_create};

use super::error::StrictError;
use super::format::StrictArchive;
use super::judge::{StrictContents, each_entry, judge_strict};
use super::limits::{StrictLimits, StrictRule};
use crate::files::archive::reader::ArchivedKind;
use crate::walk::stop_check::StopCheck;

const LIMITS: StrictLimits = StrictLimits { entries_max: 200, bytes_max: 1 << 20, depth_max: 16 };
/// A longer input is not tried, bytes.
const INPUT_BYTES_MAX: usize = 1 << 20;
const DESCRIPTION: &str = "workspace.yaml";
/// The longest name in an error, bytes: each byte may become a replacement character of three.
const NAMED_BYTES_MAX: usize = 3 * 1024;

/// The input is an archive of any format.
pub fn check(input: &[u8]) {
    let Some(file) = held(input) else { return };
    let archive = match StrictArchive::of(file) {
        Ok(archive) => archive,
        Err(error) => return is_of_the_archive(&error),
    };
    let rule = StrictRule {
        manifest: DESCRIPTION,
        manifest_bytes_max: 4096,
        links_below: &|text| text.starts_with(b"files: f\n").then(|| PathBuf::from("f")),
    };
    match judge_strict(&archive, rule, LIMITS, StopCheck::never()) {
        Ok(contents) => is_within_limits(&archive, contents),
        Err(error) => is_of_the_archive(&error),
    }
}

fn held(input: &[u8]) -> Option<File> {
    if input.len() > INPUT_BYTES_MAX {
        return None;
    }
    let mut file = File::from(memfd_create("archive", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all(input).ok()?;
    file.rewind().ok()?;
    Some(file)
}

/// No input is a fault of the host, and an error is short.
fn is_of_the_archive(error: &StrictError) {
    match error {
        StrictError::Unsafe { entry, .. } | StrictError::Malformed { entry, .. } => {
            assert!(entry.len() <= NAMED_BYTES_MAX, "{} bytes of a name", entry.len());
        }
        StrictError::Host(error) => assert!(error.to_string().is_empty(), "{error}"),
    }
}

/// Reads an accepted archive as what unpacks it does.
fn is_within_limits(archive: &StrictArchive, contents: StrictContents) {
    let mut bytes = 0;
    let entries = each_entry(archive, LIMITS, StopCheck::never(), |entry, path, stream| {
        assert!(path.components().all(|part| matches!(part, Component::Normal(_))), "{path:?}");
        assert!(path.iter().count() <= LIMITS.depth_max, "{path:?}");
        match &entry.kind {
            ArchivedKind::File => {
                let mut read = Vec::new();
                let ended = stream.take(LIMITS.bytes_max + 1).read_to_end(&mut read);
                // Damaged contents are found when they are read.
                if ended.is_ok() {
                    assert_eq!(read.len() as u64, entry.size, "{path:?}");
                }
                bytes += entry.size;
            }
            ArchivedKind::Symlink(_) | ArchivedKind::HardLink(_) => {
                assert!(path.iter().any(|part| part == "f"), "{path:?}");
            }
            ArchivedKind::Directory | ArchivedKind::Special(_) => {}
        }
        Ok(())
    });
    match entries {
        Ok(entries) => {
            assert_eq!(entries, contents.entries);
            assert!(entries <= LIMITS.entries_max && bytes <= LIMITS.bytes_max);
        }
        Err(error) => is_of_the_archive(&error),
    }
}

#[cfg(test)]
mod tests {
    use cofferdam_fixtures::kept_inputs;

    #[test]
    fn every_kept_input_holds() {
        kept_inputs::replay("task_archive", super::check);
    }
}
