//! The files that a request writes into its workspace.

use super::table::Language;
use cofferdam_core::values::rel_path::RelPath;

/// One file of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileToWrite {
    /// The path below the workspace.
    pub path: RelPath,
    /// The contents.
    pub contents: String,
}

/// Why a request has no valid files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// The language runs the checker, and the request has none.
    #[error("checker_text is required")]
    CheckerMissing,
}

/// The files of a request in `language`, in the order they are written.
///
/// An empty text is written. A checker for a language without one is ignored. Without asserts the
/// workspace keeps its own `asserts.json`.
pub fn files_for(
    language: &Language,
    solution_text: String,
    checker_text: Option<String>,
    asserts: Option<String>,
) -> Result<Vec<FileToWrite>, LayoutError> {
    let mut files = vec![FileToWrite { path: language.solution.clone(), contents: solution_text }];
    if let Some(path) = &language.checker {
        let contents = checker_text.ok_or(LayoutError::CheckerMissing)?;
        files.push(FileToWrite { path: path.clone(), contents });
    }
    if let Some(contents) = asserts {
        files.push(FileToWrite { path: language.asserts.clone(), contents });
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::lang::LanguageTable;

    type Written = Vec<(String, String)>;

    fn written(
        slug: &str,
        checker_text: Option<&str>,
        asserts: Option<&str>,
    ) -> Result<Written, LayoutError> {
        let table = LanguageTable::embedded().unwrap();
        let [checker_text, asserts] = [checker_text, asserts].map(|text| text.map(str::to_owned));
        let language = table.get(slug).unwrap();
        let files = files_for(language, "solved".to_owned(), checker_text, asserts)?;
        Ok(files.into_iter().map(|file| (file.path.to_string(), file.contents)).collect())
    }

    fn pairs(files: &[(&str, &str)]) -> Written {
        files.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn a_required_checker_may_be_empty_but_not_missing() {
        assert_eq!(written("cpp", None, Some("{}")), Err(LayoutError::CheckerMissing));
        assert_eq!(LayoutError::CheckerMissing.to_string(), "checker_text is required");
        for text in ["", "int main() {}"] {
            let files = written("cpp", Some(text), None).unwrap();
            let want = [("check/solution.cpp", "solved"), ("check/checker.cpp", text)];
            assert_eq!(files, pairs(&want));
        }
    }

    #[test]
    fn an_unused_checker_is_not_written() {
        let files = written("python", Some("import os"), None).unwrap();
        assert_eq!(files, pairs(&[("check/solution.py", "solved")]));
    }

    #[test]
    fn asserts_are_written_only_when_sent() {
        for text in ["", "{\"arguments\":[]}"] {
            let files = written("ruby", None, Some(text)).unwrap();
            let want = [("check/solution.rb", "solved"), ("check/asserts.json", text)];
            assert_eq!(files, pairs(&want));
        }
        let files = written("dart", Some("main() {}"), Some("{}")).unwrap();
        let want = [
            ("lib/solution.dart", "solved"),
            ("lib/checker.dart", "main() {}"),
            ("lib/asserts.json", "{}"),
        ];
        assert_eq!(files, pairs(&want));
    }
}
