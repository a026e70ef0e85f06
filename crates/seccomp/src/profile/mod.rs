//! Profiles: which system calls a sandbox may make, and what it sees of the host's root.
//!
//! A profile is a TOML file in which every entry gives a reason. A profile that `extends` another
//! checks its own layers first (see the [crate](crate) documentation) and has the paths of both.
//!
//! The build script of `cofferdam-sandbox` compiles the built-in profiles with this module.

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod oracle_tests;
mod root;
#[cfg(test)]
mod shipped_tests;

use serde::Deserialize;

pub use self::root::{PathError, PathFault, RootView, SYSTEM};

use self::root::RootSection;
use crate::compile::{CompileError, Policy, compile};
use crate::filter::Filter;
use crate::lint::{LintFinding, lint};
use crate::rules::{Circumstance, Rules};
use crate::syscalls::Arch;

/// The largest profile file, in bytes.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// The most profiles in a chain of `extends`, including the first.
const CHAIN_LENGTH_MAX: usize = 4;

/// The names and texts of the built-in profiles.
pub const BUILTIN: [(&str, &str); 4] = [
    ("default", include_str!("../../../../sandbox-profiles/default.toml")),
    ("init", include_str!("../../../../sandbox-profiles/init.toml")),
    ("network", include_str!("../../../../sandbox-profiles/network.toml")),
    ("strict-native", include_str!("../../../../sandbox-profiles/strict-native.toml")),
];

/// A parsed and compiled profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Its name in reports.
    pub name: String,
    /// Its purpose, in one line.
    pub description: String,
    /// The system-call filter.
    pub filter: Filter,
    /// The filter for a sandbox that can write to files of the host.
    pub writable_binds_filter: Filter,
    /// The view of the root file system.
    pub root: RootView,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// There is no built-in profile of that name.
    #[error("no profile is called {0:?}")]
    UnknownProfile(String),
    /// The text is too long.
    #[error("the profile has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The text is not TOML, or has an unknown key, a missing key or an invalid value.
    #[error("the profile does not parse: {0}")]
    Syntax(#[source] Box<toml::de::Error>),
    /// The profile that it extends does not exist.
    #[error("profile {name:?} extends {extends:?}, which does not exist")]
    UnknownBase {
        /// The profile.
        name: String,
        /// The one it extends.
        extends: String,
    },
    /// The chain of `extends` is too long, or a cycle.
    #[error("more than {CHAIN_LENGTH_MAX} profiles extend one another at {name:?}")]
    ChainTooLong {
        /// The last profile that was read.
        name: String,
    },
    /// There is no action for calls that no entry decides.
    #[error("profile {name:?}: seccomp.otherwise is neither here nor in a profile it extends")]
    NoOtherwise {
        /// The profile.
        name: String,
    },
    /// The linter found mistakes.
    #[error("profile {name:?}: {}", joined(findings))]
    Traps {
        /// The profile.
        name: String,
        /// The mistakes; never empty.
        findings: Vec<LintFinding>,
    },
    /// A path entry is invalid.
    #[error("profile {name:?}: {source}")]
    Path {
        /// The profile.
        name: String,
        /// Which entry, and why.
        source: PathError,
    },
    /// The rules cannot be compiled.
    #[error("profile {name:?}: {source}")]
    Compile {
        /// The profile.
        name: String,
        /// Why.
        source: CompileError,
    },
}

impl Profile {
    /// The names of the built-in profiles.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// Parses and compiles the built-in profile `name` for `arch`.
    ///
    /// # Errors
    /// There is no such profile.
    pub fn parse_builtin(arch: Arch, name: &str) -> Result<Self, ProfileError> {
        let text = builtin_text(name).ok_or_else(|| ProfileError::UnknownProfile(name.into()))?;
        Self::parse_for(arch, text, |base| builtin_text(base).map(str::to_owned))
    }

    /// Parses the profile in `text`, at most 256 KiB, and compiles it for this machine. `extended`
    /// returns the text of a profile by name, for `extends`.
    ///
    /// # Errors
    /// The text does not parse, the linter finds mistakes, or the filter is too long.
    pub fn parse(
        text: &str,
        extended: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ProfileError> {
        Self::parse_for(Arch::NATIVE, text, extended)
    }

    /// As [`parse`](Self::parse), for `arch`.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_for(
        arch: Arch,
        text: &str,
        extended: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ProfileError> {
        let MergedProfile { name, description, policy, root } = MergedProfile::of(text, extended)?;
        let compiled = |policy: &Policy| {
            compile(&name, policy, arch)
                .map_err(|source| ProfileError::Compile { name: name.clone(), source })
        };
        let filter = compiled(&policy)?;
        let writable_binds_filter = compiled(&policy.in_case_of(Circumstance::WritableBinds))?;
        Ok(Self { name, description, filter, writable_binds_filter, root })
    }

    /// The filter for a sandbox with or without writable bind mounts.
    pub fn filter_for(&self, writable_binds: bool) -> &Filter {
        if writable_binds { &self.writable_binds_filter } else { &self.filter }
    }
}

/// A profile merged with those that it extends, not yet compiled.
#[derive(Debug)]
struct MergedProfile {
    name: String,
    description: String,
    policy: Policy,
    root: RootView,
}

impl MergedProfile {
    fn of(text: &str, extended: impl Fn(&str) -> Option<String>) -> Result<Self, ProfileError> {
        let (first, bases) = chain(text, extended)?;
        let ProfileFile { name, description, seccomp, mut root, .. } = first;
        let mut rules = seccomp;
        for base in bases {
            root.append(base.root);
            if rules.otherwise.is_none() {
                rules.layers.extend(base.seccomp.layers);
                rules.otherwise = base.seccomp.otherwise;
            }
        }
        let Rules { layers, otherwise: Some(otherwise) } = rules else {
            return Err(ProfileError::NoOtherwise { name });
        };
        let root =
            root.checked().map_err(|source| ProfileError::Path { name: name.clone(), source })?;
        Ok(Self { name, description, policy: Policy { layers, otherwise }, root })
    }
}

fn builtin_text(name: &str) -> Option<&'static str> {
    BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// A profile file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProfileFile {
    name: String,
    extends: Option<String>,
    description: String,
    #[serde(default)]
    seccomp: Rules,
    #[serde(default)]
    root: RootSection,
}

/// Parses and lints the profile in `text` and those that it extends, nearest first.
fn chain(
    text: &str,
    extended: impl Fn(&str) -> Option<String>,
) -> Result<(ProfileFile, Vec<ProfileFile>), ProfileError> {
    let first = file(text)?;
    let mut bases: Vec<ProfileFile> = Vec::new();
    loop {
        let last = bases.last().unwrap_or(&first);
        let Some(extends) = &last.extends else {
            return Ok((first, bases));
        };
        if bases.len() + 1 == CHAIN_LENGTH_MAX {
            return Err(ProfileError::ChainTooLong { name: last.name.clone() });
        }
        let text = extended(extends).ok_or_else(|| ProfileError::UnknownBase {
            name: last.name.clone(),
            extends: extends.clone(),
        })?;
        bases.push(file(&text)?);
    }
}

fn file(text: &str) -> Result<ProfileFile, ProfileError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(ProfileError::TooLarge { bytes: text.len() });
    }
    let file: ProfileFile =
        toml::from_str(text).map_err(|source| ProfileError::Syntax(Box::new(source)))?;
    let findings = lint(&file.seccomp);
    if findings.is_empty() {
        Ok(file)
    } else {
        Err(ProfileError::Traps { name: file.name, findings })
    }
}

fn joined(findings: &[LintFinding]) -> String {
    findings.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const OTHERWISE: &str = r#"
        [seccomp.otherwise]
        known = { errno = "ENOSYS" }
        unknown = { errno = "ENOSYS" }
        reason = "sample"
    "#;

    fn head(name: &str, rest: &str) -> String {
        format!("name = {name:?}\ndescription = \"a sample\"\n{rest}\n")
    }

    fn layer(call: &str, action: &str) -> String {
        format!(
            "[[seccomp.layer]]\nname = \"on {call}\"\n[[seccomp.layer.entry]]\nsyscalls = [{call:?}]\n\
             action = {action}\nreason = \"sample\"\n"
        )
    }

    fn root(list: &str, path: &str, reason: &str) -> String {
        format!("[[root.{list}]]\npaths = [{path:?}]\nreason = {reason:?}\n")
    }

    fn alone(text: &str) -> Result<Profile, String> {
        Profile::parse(text, |_| None).map_err(|error| error.to_string())
    }

    #[test]
    fn an_extending_profile_decides_before_its_base() {
        use crate::interpret::{SeccompData, decide};
        use crate::rules::Action;
        use nix::errno::Errno;

        let base = head("base", "")
            + OTHERWISE
            + &layer("read", "\"allow\"")
            + &layer("write", "\"allow\"")
            + &root("hide", "/home", "r");
        let own = layer("read", "{ errno = \"EPERM\" }") + &root("hide", "/var", "r");
        let open = head("open", "extends = \"base\"") + &own;
        let closed = head("closed", "extends = \"base\"") + OTHERWISE + &own;
        let [refused, absent] = [Errno::EPERM, Errno::ENOSYS].map(Action::Errno);
        for (text, write) in [(open, Action::Allow), (closed, absent)] {
            let profile = Profile::parse(&text, |name| (name == "base").then(|| base.clone()));
            let profile = profile.unwrap();
            for (call, want) in [("read", refused), ("write", write), ("open", absent)] {
                let data = SeccompData {
                    number: Arch::NATIVE.number(call).unwrap_or(u32::MAX),
                    arch: Arch::NATIVE.audit(),
                    ..SeccompData::default()
                };
                assert_eq!(decide(&profile.filter, &data), Ok(want), "{} {call}", profile.name);
            }
            assert_eq!(profile.root.hide, ["/var", "/home"]);
        }
    }

    #[test]
    fn a_profile_that_cannot_be_used_says_where_and_why() {
        let sound = head("p", "") + OTHERWISE;
        let path = |list, path, reason| sound.clone() + &root(list, path, reason);
        let table = [
            (sound.clone() + "[surprise]", "unknown field `surprise`"),
            (sound.clone() + "[root]\nshow = []", "unknown field `show`"),
            (sound.clone() + "[[root.hide]]\npath = \"/a\"", "unknown field `path`"),
            (sound.clone() + &layer("read", "\"log\""), "unknown variant `log`"),
            (sound.clone() + &layer("raed", "\"allow\""), "layer \"on raed\", entry 1: no arch"),
            (head("p", ""), "profile \"p\": seccomp.otherwise is neither here"),
            (head("p", "extends = \"q\""), "profile \"p\" extends \"q\", which does not exist"),
            (path("hide", "home", "r"), "root.hide: \"home\" is not an absolute path"),
            (path("hide", "/home/", "r"), "root.hide: \"/home/\" is not an absolute path"),
            (path("hide", "/", "r"), "root.hide: \"/\" is not an absolute path"),
            (path("hide", "/a/../b", "r"), "root.hide: \"/a/../b\" is not an absolute path"),
            (path("hide", "/home", ""), "root.hide: \"/home\" is given without a reason"),
            (path("hide", "/a", "r") + &root("hide", "/a", "r"), "\"/a\" is listed twice"),
            (path("keep", "/usr/lib", "r"), "\"/usr/lib\" is neither below a hidden path"),
            (
                path("hide", "/us", "r") + &root("keep", "/usr", "r"),
                "\"/usr\" is neither below a h",
            ),
            (path("devices", "/etc/null", "r"), "\"/etc/null\" is not below /dev"),
            (path("proc_mask", "/process", "r"), "\"/process\" is not below /proc"),
            ("#".repeat(TEXT_BYTES_MAX + 1), "the profile has 262145 bytes, more than 262144"),
        ];
        assert!(alone(&sound).is_ok());
        for (text, want) in table {
            let error = alone(&text).expect_err(&text);
            assert!(error.contains(want), "{error:?} does not say {want:?}");
        }
    }

    #[test]
    fn a_cycle_of_profiles_is_refused() {
        let circle = head("p", "extends = \"p\"");
        let error = Profile::parse(&circle, |_| Some(circle.clone()));
        assert!(matches!(error, Err(ProfileError::ChainTooLong { .. })));
    }
}
