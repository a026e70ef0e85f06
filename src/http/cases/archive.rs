//! Unpacks the archive of a Case that a client sent.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

use cofferdam_tree::files::{
    StrictArchive, StrictError, StrictLimits, StrictRule, UnsafeReason, unpack_strict,
};
use cofferdam_tree::{Owner, StopCheck};

use crate::case::file::{CaseCode, CaseFinding};
use crate::case::service::CaseRunsError;
use cofferdam_core::values::deadline::Deadline;

const CASE_FILE: &str = "case.yaml";

/// Unpacks `body`, a tar.gz or zip, into the empty directory `into`. All of it is judged before anything is written;
/// it has no links, and its files have at most `bytes_max` bytes.
pub fn unpack(
    body: &[u8],
    into: &Path,
    bytes_max: u64,
    deadline: Deadline,
) -> Result<(), CaseRunsError> {
    let failed = |error: std::io::Error| CaseRunsError::Store(error.to_string());
    let target = File::open(into).map_err(failed)?;
    // It has no name, so that the directory stays empty.
    let mut file = tempfile::tempfile_in(into).map_err(failed)?;
    file.write_all(body).map_err(failed)?;
    let archive = StrictArchive::of(file).map_err(|error| refused(error, bytes_max))?;
    let no_links = |_: &[u8]| None;
    let rule = StrictRule { manifest: CASE_FILE, manifest_bytes_max: 0, links_below: &no_links };
    let owner =
        Owner { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() };
    let limits = StrictLimits { bytes_max, ..StrictLimits::default() };
    let is_late = || deadline.passed();
    let unpacked =
        unpack_strict(&archive, rule, target.as_fd(), owner, limits, StopCheck(&is_late));
    match unpacked {
        Err(_) if deadline.passed() => {
            Err(CaseRunsError::invalid("body", "it takes too long to unpack the archive"))
        }
        unpacked => unpacked.map(|_| ()).map_err(|error| refused(error, bytes_max)),
    }
}

fn refused(error: StrictError, bytes_max: u64) -> CaseRunsError {
    match error {
        StrictError::Unsafe { reason: UnsafeReason::Size, .. } => {
            CaseRunsError::TooLarge { bytes_max }
        }
        StrictError::Unsafe { entry, reason } => {
            let message = format!("the archive is not safe here: {}", reason.word());
            let errors = vec![CaseFinding { path: entry, code: code_of(reason), message }];
            CaseRunsError::InvalidCase { errors }
        }
        StrictError::Malformed { entry, reason } if entry.is_empty() => {
            CaseRunsError::invalid("body", format!("the archive cannot be read: {reason}"))
        }
        StrictError::Malformed { entry, reason } => {
            let message = format!("the archive cannot be read at {entry:?}: {reason}");
            CaseRunsError::invalid("body", message)
        }
        StrictError::Host(error) => CaseRunsError::Store(error.to_string()),
    }
}

fn code_of(reason: UnsafeReason) -> CaseCode {
    match reason {
        UnsafeReason::Traversal | UnsafeReason::Absolute | UnsafeReason::Link => {
            CaseCode::UnsafePath
        }
        UnsafeReason::Ratio | UnsafeReason::Size | UnsafeReason::Entries | UnsafeReason::Window => {
            CaseCode::TooLarge
        }
        UnsafeReason::Device | UnsafeReason::Name | UnsafeReason::Duplicate => {
            CaseCode::InvalidValue
        }
    }
}
