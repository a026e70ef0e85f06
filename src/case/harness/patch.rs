//! The harness that applies a patch: `replay`, and the oracle of a Case that has one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::beside::put_beside;
use super::call::{Harness, HarnessCall};
use super::end::{HarnessEnd, HarnessError, millis_since};
use crate::case::cell::{CellExecutor, ExecRequest, FILE_BYTES_MAX};
use crate::evaluation::repository::git_environment::isolated_environment;
use cofferdam_core::Outcome;

/// Variables of a Cell's own that git needs no others of.
const OF_THE_CELL: [&str; 3] = ["PATH", "HOME", "TMPDIR"];
/// The exit code of a program that is not found.
const NOT_FOUND: u8 = 127;

/// Applies a patch in git's format, all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PatchHarness {
    /// The file with the patch.
    pub patch: PathBuf,
}

impl Harness for PatchHarness {
    fn work(
        &self,
        cell: &dyn CellExecutor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        let started = Instant::now();
        let Some(patch) = ready_patch(read_patch(&self.patch)?) else {
            return Ok(HarnessEnd::of(Outcome::Exited { code: 0 }, 0, String::new()));
        };
        let file = put_beside(cell, "agent.patch", &patch)?;
        let mut request = ExecRequest::new(["git", "apply", "--whitespace=nowarn", &file]);
        request.timeout = Duration::MAX;
        request.env = git_variables(&cell.describe()?.sandbox);
        let result = call.run(cell, request, &BTreeMap::new())?;
        // It has no time, so nothing was executed.
        if result.exit_code == Some(NOT_FOUND) && result.wall_ms.is_none() {
            return Err(HarnessError::failed(
                "a patch is applied by git, which the Cell does not have",
            ));
        }
        Ok(HarnessEnd::of_command(&result, millis_since(started)))
    }
}

fn read_patch(path: &Path) -> Result<Vec<u8>, HarnessError> {
    let failed =
        |words: String| HarnessError::failed(format!("the patch '{}': {words}", path.display()));
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| failed(error.to_string()))?;
    match bytes.len() as u64 > FILE_BYTES_MAX {
        true => Err(failed(format!("has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(bytes),
    }
}

/// The patch as git takes it, whose last line has to end; `None` if it is blank, which is no patch for git.
fn ready_patch(mut patch: Vec<u8>) -> Option<Vec<u8>> {
    if patch.trim_ascii().is_empty() {
        return None;
    }
    if !patch.ends_with(b"\n") {
        patch.push(b'\n');
    }
    Some(patch)
}

/// The variables of git, which reads no configuration but ours, and takes the sandbox for a repository only if it is
/// one itself: below a repository it would ignore what lies outside of its own directory.
fn git_variables(sandbox: &Path) -> BTreeMap<String, Option<String>> {
    let mut variables: BTreeMap<String, Option<String>> = isolated_environment([])
        .into_iter()
        .filter(|(name, _)| !OF_THE_CELL.contains(&name.as_str()))
        .map(|(name, value)| (name, Some(value)))
        .collect();
    let above = sandbox.parent().map(|above| above.display().to_string());
    variables.insert("GIT_CEILING_DIRECTORIES".to_owned(), above);
    variables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_ends_with_its_last_line_and_a_blank_one_is_none() {
        for (patch, wanted) in
            [("", None), (" \n\t\n", None), ("a\n", Some("a\n")), ("a", Some("a\n"))]
        {
            let wanted = wanted.map(|text| text.as_bytes().to_vec());
            assert_eq!(ready_patch(patch.as_bytes().to_vec()), wanted, "{patch:?}");
        }
    }

    #[test]
    fn git_has_the_path_of_the_cell_and_no_repository_above() {
        let variables = git_variables(Path::new("/c/sandbox"));
        assert!(OF_THE_CELL.iter().all(|name| !variables.contains_key(*name)));
        assert_eq!(variables["GIT_CEILING_DIRECTORIES"].as_deref(), Some("/c"));
        assert_eq!(variables["GIT_CONFIG_NOSYSTEM"].as_deref(), Some("1"));
    }
}
