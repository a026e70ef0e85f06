//! The languages of agents.

use serde::{Deserialize, Serialize};

/// The language of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentLanguage {
    /// python3.
    Python,
    /// node.
    Javascript,
    /// tsx, or node.
    Typescript,
    /// ruby.
    Ruby,
    /// go run.
    Go,
    /// bash.
    Shell,
    /// rustc, and then the program.
    Rust,
}

impl AgentLanguage {
    /// Every name of a language.
    const NAMES: [(&'static str, Self); 16] = [
        ("python", Self::Python),
        ("py", Self::Python),
        ("javascript", Self::Javascript),
        ("js", Self::Javascript),
        ("node", Self::Javascript),
        ("typescript", Self::Typescript),
        ("ts", Self::Typescript),
        ("ruby", Self::Ruby),
        ("rb", Self::Ruby),
        ("go", Self::Go),
        ("golang", Self::Go),
        ("shell", Self::Shell),
        ("bash", Self::Shell),
        ("sh", Self::Shell),
        ("rust", Self::Rust),
        ("rs", Self::Rust),
    ];

    /// Every name of a language.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMES.iter().map(|(name, _)| *name)
    }

    /// The language of that name, in any case.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.iter();
        names.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, language)| *language)
    }

    /// Its first name.
    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.iter();
        names.find(|(_, language)| *language == self).map_or("", |(name, _)| name)
    }

    /// The name of the agent's file below `/agent`.
    pub fn file_name(self) -> &'static str {
        match self {
            Self::Python => "agent.py",
            Self::Javascript => "agent.js",
            Self::Typescript => "agent.ts",
            Self::Ruby => "agent.rb",
            Self::Go => "agent.go",
            Self::Shell => "agent.sh",
            Self::Rust => "agent.rs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_has_several_names_in_any_case() {
        for (name, language) in [
            ("python", Some(AgentLanguage::Python)),
            ("PY", Some(AgentLanguage::Python)),
            ("Node", Some(AgentLanguage::Javascript)),
            ("rs", Some(AgentLanguage::Rust)),
            ("bash", Some(AgentLanguage::Shell)),
            ("cobol", None),
            ("", None),
        ] {
            assert_eq!(AgentLanguage::of_name(name), language, "{name}");
        }
    }
}
