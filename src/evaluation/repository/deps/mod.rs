//! What is installed for a task: the directories below `/deps`, and the variables that name them.

use std::collections::BTreeMap;

use cofferdam_core::WorkspacePath;
use cofferdam_sandbox::plan::PATH_DEFAULT;

/// The directories of programs below `/deps`.
const DEPS_PATHS: &str = "/deps/venv/bin:/deps/bin:/deps/npm/bin";
/// The virtual environment of the repository.
pub const VENV: &str = "/deps/venv";
/// That of an agent for which something is installed.
pub const AGENT_VENV: &str = "/agent/venv";

/// The variables that install, agent and tests have in common. `place` is where they see the repository.
pub fn phase_environment(place: &WorkspacePath) -> BTreeMap<String, String> {
    let path = format!("{DEPS_PATHS}:{PATH_DEFAULT}");
    let repository = place.as_path().display().to_string();
    [
        ("PATH", path.as_str()),
        ("HOME", "/tmp/home"),
        ("TMPDIR", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("REPO_DIR", &repository),
        ("VIRTUAL_ENV", "/deps/venv"),
        ("GOPATH", "/deps/go"),
        ("GOMODCACHE", "/deps/go/pkg/mod"),
        ("CARGO_HOME", "/deps/cargo"),
        ("GEM_HOME", "/deps/gems"),
        ("npm_config_prefix", "/deps/npm"),
        ("npm_config_cache", "/deps/npm-cache"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// [`phase_environment`] with the variables of a task. What is installed stays first on a PATH of the task's.
pub fn with_variables(
    place: &WorkspacePath,
    variables: impl IntoIterator<Item = (String, String)>,
) -> BTreeMap<String, String> {
    let mut all = phase_environment(place);
    all.extend(variables);
    if let Some(path) = all.get_mut("PATH").filter(|path| !path.contains(DEPS_PATHS)) {
        *path = format!("{DEPS_PATHS}:{path}");
    }
    all
}

/// The variables with which it is installed what an agent needs, besides those of every phase: what names
/// `/deps` names [`AGENT_VENV`] instead, or a directory that is not kept.
pub fn agent_install_environment() -> BTreeMap<String, String> {
    let path = agent_path();
    [
        ("PATH", path.as_str()),
        ("VIRTUAL_ENV", AGENT_VENV),
        ("GOPATH", "/tmp/go"),
        ("GOMODCACHE", "/tmp/go/pkg/mod"),
        ("GOBIN", "/agent/venv/bin"),
        ("CARGO_HOME", "/tmp/cargo"),
        ("CARGO_INSTALL_ROOT", AGENT_VENV),
        ("GEM_HOME", AGENT_VENV),
        ("npm_config_prefix", AGENT_VENV),
        ("npm_config_cache", "/tmp/npm-cache"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// PATH of an agent for which something is installed.
pub fn agent_path() -> String {
    format!("{AGENT_VENV}/bin:{DEPS_PATHS}:{PATH_DEFAULT}")
}

/// Whether install may see this variable of the service's configuration: not what holds credentials, which are
/// rules of the proxy.
pub fn is_for_install(name: &str, value: &str) -> bool {
    let is_secret = ["_TOKEN", "_PASSWORD", "_auth"].iter().any(|end| name.ends_with(end));
    let has_user_info = value.split("://").skip(1).any(|rest| {
        let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
        authority.contains('@')
    });
    !is_secret && !has_user_info
}

/// A program for the root file system's Python that makes a virtual environment at its first argument, as its
/// module `venv` does, in a fraction of the time. Packages of the environment at its second argument are found behind
/// its own. Its `pip` is that of the system, or else the one that
/// Python brings along, unpacked at the first use.
pub const MAKE_VENV: &str = include_str!("make_venv.py");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_not_for_install() {
        for (name, value, expected) in [
            ("PIP_INDEX_URL", "https://pypi.example.org/simple", true),
            ("PIP_INDEX_URL", "https://user:password@pypi.example.org/simple", false),
            ("URLS", "https://a.example.org https://token@b.example.org", false),
            ("GOPROXY", "https://a.example.org/x@v1", true),
            ("NPM_TOKEN", "x", false),
            ("PIP_PASSWORD", "x", false),
            ("npm_config__auth", "x", false),
            ("TOKENS", "x", true),
        ] {
            assert_eq!(is_for_install(name, value), expected, "{name}={value}");
        }
    }

    #[test]
    fn what_is_installed_stays_first_on_a_path_of_the_tasks() {
        let place = WorkspacePath::default();
        let path_of = |path: &str| {
            let given = ("PATH".to_owned(), path.to_owned());
            with_variables(&place, [given])["PATH"].clone()
        };
        assert_eq!(path_of("/opt/x"), "/deps/venv/bin:/deps/bin:/deps/npm/bin:/opt/x");
        assert_eq!(path_of(&agent_path()), agent_path());
        let none = with_variables(&place, []);
        assert_eq!(none, phase_environment(&place));
    }

    #[test]
    fn what_is_installed_comes_first_on_the_path() {
        let place = WorkspacePath::parse("/srv/app").unwrap();
        let variables = phase_environment(&place);
        assert!(
            variables["PATH"].starts_with("/deps/venv/bin:/deps/bin:/deps/npm/bin:/usr/local/")
        );
        assert_eq!(variables["REPO_DIR"], "/srv/app");
        assert_eq!((variables["HOME"].as_str(), variables.len()), ("/tmp/home", 12));
    }
}
