//! Why a task cannot be used.

use serde_json::{Value, json};

/// Why a task cannot be used: `failure.code`, `failure.details` and words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// A file of the task, or the archive itself, is malformed: `task.invalid`.
    #[error("{}{reason}", place(.file.as_deref(), *.line, .field.as_deref()))]
    Invalid {
        /// The file, by its path in the task; `None` for the archive itself.
        file: Option<String>,
        /// The line in it, from 1.
        line: Option<u64>,
        /// The field in it, such as `install[2]`.
        field: Option<String>,
        /// What is wrong.
        reason: String,
    },
    /// The archive has an entry that may not be unpacked: `task.unsafe_archive`.
    #[error("the archive is not safe at {entry:?}: {reason}")]
    UnsafeArchive {
        /// The entry's name; empty for the archive as a whole.
        entry: String,
        /// One of `traversal absolute link device name duplicate ratio size entries window`.
        reason: &'static str,
    },
    /// The archive is larger than EVAL_ARCHIVE_MAX: `task.too_large`.
    #[error("the archive is larger than {bytes_max} bytes")]
    TooLarge {
        /// The limit, bytes.
        bytes_max: u64,
    },
    /// The repository's URL may not be used: `repo.url_denied`.
    #[error("workspace.yaml: repo: {reason}")]
    RepositoryDenied {
        /// The line of `repo`, from 1.
        line: Option<u64>,
        /// What is wrong.
        reason: String,
    },
    /// The task has no test: `tests.none`.
    #[error("the task has no tests")]
    NoTests,
    /// This host could not read or write the task's files: `sandbox.failed`.
    #[error("{0}")]
    Host(String),
}

fn place(file: Option<&str>, line: Option<u64>, field: Option<&str>) -> String {
    let file = file.unwrap_or("the archive");
    let line = line.map(|line| format!(":{line}")).unwrap_or_default();
    let field = field.map(|field| format!(" {field}:")).unwrap_or_default();
    format!("{file}{line}:{field} ")
}

impl TaskError {
    /// A fault of the whole file `file`.
    pub fn file(file: &str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            file: Some(file.to_owned()),
            line: None,
            field: None,
            reason: reason.into(),
        }
    }

    /// A fault of the field `field` of `file`.
    pub fn field(file: &str, field: &str, reason: impl Into<String>) -> Self {
        let (file, field) = (Some(file.to_owned()), Some(field.to_owned()));
        Self::Invalid { file, line: None, field, reason: reason.into() }
    }

    /// `failure.code`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Invalid { .. } => "task.invalid",
            Self::UnsafeArchive { .. } => "task.unsafe_archive",
            Self::TooLarge { .. } => "task.too_large",
            Self::RepositoryDenied { .. } => "repo.url_denied",
            Self::NoTests => "tests.none",
            Self::Host(_) => "sandbox.failed",
        }
    }

    /// `failure.details`.
    pub fn details(&self) -> Value {
        match self {
            Self::Invalid { file, field, .. } => json!({"file": file, "field": field}),
            Self::UnsafeArchive { entry, reason } => json!({"entry": entry, "reason": reason}),
            Self::RepositoryDenied { .. } => json!({"file": "workspace.yaml", "field": "repo"}),
            Self::TooLarge { .. } | Self::NoTests | Self::Host(_) => json!({}),
        }
    }

    /// `failure.limit`.
    pub fn limit(&self) -> Option<&'static str> {
        match self {
            Self::TooLarge { .. } => Some("archive"),
            Self::UnsafeArchive { reason: "size" | "entries" | "ratio" | "window", .. } => {
                Some("archive")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_code_and_names_its_place() {
        for (error, code, words, details) in [
            (
                TaskError::field("workspace.yaml", "install[1]", "must be a string"),
                "task.invalid",
                "workspace.yaml: install[1]: must be a string",
                json!({"file": "workspace.yaml", "field": "install[1]"}),
            ),
            (
                TaskError::file("prompt.md", "is missing"),
                "task.invalid",
                "prompt.md: is missing",
                json!({"file": "prompt.md", "field": null}),
            ),
            (
                TaskError::UnsafeArchive { entry: "../x".into(), reason: "traversal" },
                "task.unsafe_archive",
                "the archive is not safe at \"../x\": traversal",
                json!({"entry": "../x", "reason": "traversal"}),
            ),
            (TaskError::NoTests, "tests.none", "the task has no tests", json!({})),
        ] {
            assert_eq!(error.code(), code);
            assert_eq!(error.to_string(), words);
            assert_eq!(error.details(), details);
        }
    }
}
