//! Profiles: which system calls a box may make and what it sees of the host's root.
//!
//! A profile is a TOML file whose every entry gives its reason. One that `extends` another has
//! its own layers asked first (see [`seccomp`](crate)) and the paths of both.
//!
//! The build script has this module too: profiles that are part of the program are compiled there
//! (`builtin` has them).

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

/// The largest profile file taken, in bytes.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// The most profiles in one line of `extends`, the first included.
const CHAIN_LENGTH_MAX: usize = 4;

/// The texts of the profiles that are part of this program, by name.
pub const BUILTIN: [(&str, &str); 4] = [
    ("default", include_str!("../../../../sandbox-profiles/default.toml")),
    ("init", include_str!("../../../../sandbox-profiles/init.toml")),
    ("network", include_str!("../../../../sandbox-profiles/network.toml")),
    ("strict-native", include_str!("../../../../sandbox-profiles/strict-native.toml")),
];

/// A profile, ready for use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// The name it goes by in reports.
    pub name: String,
    /// What it is for, in one line.
    pub description: String,
    /// The system-call filter.
    pub filter: Filter,
    /// The one for a sandbox that can write to files of the host.
    pub writable_binds_filter: Filter,
    /// The view of the root file system.
    pub root: RootView,
}

/// Why a profile cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// No such profile inside this program.
    #[error("no profile is called {0:?}")]
    UnknownProfile(String),
    /// The text is over the limit.
    #[error("the profile has {bytes} bytes, more than {TEXT_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not TOML, an unknown key, a missing one, or a value that makes no sense.
    #[error("the profile does not parse: {0}")]
    Syntax(#[source] Box<toml::de::Error>),
    /// The profile it extends is not to be found.
    #[error("profile {name:?} extends {extends:?}, which does not exist")]
    UnknownBase {
        /// The profile.
        name: String,
        /// The one it extends.
        extends: String,
    },
    /// Too many profiles extend one another, or they do so in a circle.
    #[error("more than {CHAIN_LENGTH_MAX} profiles extend one another at {name:?}")]
    ChainTooLong {
        /// The last one looked at.
        name: String,
    },
    /// Calls that no entry decides have no answer.
    #[error("profile {name:?}: seccomp.otherwise is neither here nor in a profile it extends")]
    NoOtherwise {
        /// The profile.
        name: String,
    },
    /// The linter found something.
    #[error("profile {name:?}: {}", joined(findings))]
    Traps {
        /// The profile.
        name: String,
        /// What it found; never empty.
        findings: Vec<LintFinding>,
    },
    /// A path entry makes no sense.
    #[error("profile {name:?}: {source}")]
    Path {
        /// The profile.
        name: String,
        /// Which entry, and why.
        source: PathError,
    },
    /// There is no program for it.
    #[error("profile {name:?}: {source}")]
    Compile {
        /// The profile.
        name: String,
        /// Why.
        source: CompileError,
    },
}

impl Profile {
    /// The names of the builtin profiles.
    pub fn builtin_names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// The profile `name` of those that are part of this program, from its text.
    pub fn parse_builtin(arch: Arch, name: &str) -> Result<Self, ProfileError> {
        let text = builtin_text(name).ok_or_else(|| ProfileError::UnknownProfile(name.into()))?;
        Self::parse_for(arch, text, |base| builtin_text(base).map(str::to_owned))
    }

    /// The profile in `text`, compiled for this machine; `extended` finds the text of a profile
    /// it extends by its name.
    pub fn parse(
        text: &str,
        extended: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ProfileError> {
        Self::parse_for(Arch::NATIVE, text, extended)
    }

    /// As [`parse`](Self::parse), compiled for `arch`.
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

    /// The filter for a sandbox with or without binds that the program can write to.
    pub fn filter_for(&self, writable_binds: bool) -> &Filter {
        if writable_binds { &self.writable_binds_filter } else { &self.filter }
    }
}

/// A profile with those it extends taken into it, before anything is compiled.
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

/// A profile as its file says it.
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

/// The profile in `text`, and those it extends, nearest first; none has a trap.
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
    fn an_extending_profile_is_asked_first_and_then_its_base() {
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
    fn a_circle_of_profiles_ends() {
        let circle = head("p", "extends = \"p\"");
        let error = Profile::parse(&circle, |_| Some(circle.clone()));
        assert!(matches!(error, Err(ProfileError::ChainTooLong { .. })));
    }
}
