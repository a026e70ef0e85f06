//! The programs of kernels, and the requests to them.

use serde_json::json;

/// The language of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelLanguage {
    /// Python 3.
    Python,
    /// JavaScript on Node.
    JavaScript,
}

impl KernelLanguage {
    /// Every language.
    pub const ALL: [Self; 2] = [Self::Python, Self::JavaScript];

    /// The language that a request calls `name`; case and spaces around it do not count.
    pub fn parse(name: &str) -> Option<Self> {
        match name.trim().to_ascii_lowercase().as_str() {
            "python" | "py" | "python3" => Some(Self::Python),
            "javascript" | "js" | "node" => Some(Self::JavaScript),
            _ => None,
        }
    }

    /// The name in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
        }
    }

    /// The name in metrics.
    pub fn short_name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "js",
        }
    }

    /// The interpreter and its arguments. The program of the kernel is one of them: no file of the
    /// workspace can replace it.
    pub fn argv(self) -> [&'static str; 3] {
        match self {
            Self::Python => ["python3", "-c", include_str!("kernel.py")],
            Self::JavaScript => ["node", "-e", include_str!("kernel.js")],
        }
    }
}

/// The first line to a kernel, which then reports that it is ready. Its run has the directory `run_dir`.
pub fn first_line(run_dir: Option<&str>) -> String {
    format!("{}\n", json!({"run_dir": run_dir}))
}

/// A request to run `code`, which tracebacks call `file`. `id` marks the answer.
pub fn request_line(id: &str, code: &str, file: &str) -> String {
    format!("{}\n", json!({"id": id, "code": code, "file": file}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_languages_are_those_of_the_contract() {
        for name in ["python", "py", "python3", " PYTHON "] {
            assert_eq!(KernelLanguage::parse(name), Some(KernelLanguage::Python), "{name}");
        }
        for name in ["javascript", "js", "node"] {
            assert_eq!(KernelLanguage::parse(name), Some(KernelLanguage::JavaScript), "{name}");
        }
        for name in ["", "bash", "python2", "typescript"] {
            assert_eq!(KernelLanguage::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_request_is_one_line_whatever_the_code_is() {
        let line = request_line("i", "a\nb\u{2028}\r\0", "<block 1>");
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.ends_with('\n'));
    }
}
