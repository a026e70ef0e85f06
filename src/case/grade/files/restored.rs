//! Which files of the agent's difference a grader does not get.

use super::reports::ReportPatterns;
use crate::case::file::{GraderKind, InjectedFile};
use crate::case::grade::grader::GradeError;
use cofferdam_core::weakened::{self, Wall};

/// Patterns of what the agent left that a grader of `kind` has to find as the agent got it: reports, which only tests
/// write, and the destinations of hidden files with all that is in them.
///
/// # Errors
/// A pattern of reports is malformed.
pub fn restored_patterns(kind: &GraderKind) -> Result<Vec<String>, GradeError> {
    let (inject, reports): (&[InjectedFile], &[String]) = match kind {
        GraderKind::Tests { counts, .. } | GraderKind::Pytest { counts } => {
            (&counts.inject, &counts.junit_xml)
        }
        GraderKind::Swebench { inject, .. } => (inject, &[]),
        GraderKind::Command { .. }
        | GraderKind::Files { .. }
        | GraderKind::Implemented { .. }
        | GraderKind::Unsupported { .. } => (&[], &[]),
    };
    let mut patterns = ReportPatterns::parse(reports)?.texts().to_vec();
    for file in inject.iter().filter(|_| !weakened::lacks(Wall::Replaced)) {
        let plain = globset::escape(&file.destination.to_string_lossy());
        patterns.extend([format!("{plain}/**"), plain]);
    }
    Ok(patterns)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::case::file::TestCounts;
    use cofferdam_core::values::glob::Globs;

    #[test]
    fn reports_and_the_places_of_hidden_files_are_restored() {
        let inject = ["tests/t_[a].py", "data{x}"].map(|destination| InjectedFile {
            source: "hidden".into(),
            destination: destination.into(),
        });
        let counts = TestCounts {
            inject: inject.to_vec(),
            junit_xml: vec!["./out//*.xml".to_owned()],
            expect_total: None,
            pass_threshold: 1.0,
            timeout_s: 1.0,
        };
        let patterns = restored_patterns(&GraderKind::Pytest { counts }).unwrap();
        let globs = Globs::parse(&patterns).unwrap();
        for (path, is_restored) in [
            ("out/a.xml", true),
            ("out/deep/a.xml", false),
            ("tests/t_[a].py", true),
            ("tests/t_a.py", false),
            ("data{x}", true),
            ("data{x}/deep/b", true),
            ("datax", false),
            ("a.py", false),
        ] {
            assert_eq!(globs.matches(Path::new(path)), is_restored, "{path}");
        }
        assert!(
            restored_patterns(&GraderKind::Implemented { files: Vec::new() }).unwrap().is_empty()
        );
    }
}
