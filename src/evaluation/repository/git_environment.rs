//! The environment in which git reads no configuration but ours, and runs nothing that a repository names.

use std::collections::BTreeMap;

use cofferdam_sandbox::plan::PATH_DEFAULT;

/// Settings of every call, whatever a repository's own configuration says.
pub const ISOLATED: [(&str, &str); 7] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.excludesFile", "/dev/null"),
    ("core.autocrlf", "false"),
    ("safe.directory", "*"),
    ("gc.auto", "0"),
];

const VARIABLES: [(&str, &str); 9] = [
    ("PATH", PATH_DEFAULT),
    ("HOME", "/tmp/home"),
    ("TMPDIR", "/tmp"),
    ("LC_ALL", "C"),
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
];

/// The variables of a call with `settings` besides [`ISOLATED`]. They count before a repository's own
/// configuration.
pub fn isolated_environment(
    settings: impl IntoIterator<Item = (String, &'static str)>,
) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> =
        VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let isolated = ISOLATED.map(|(name, value)| (name.to_owned(), value));
    let mut count = 0;
    for (name, value) in isolated.into_iter().chain(settings) {
        all.insert(format!("GIT_CONFIG_KEY_{count}"), name);
        all.insert(format!("GIT_CONFIG_VALUE_{count}"), value.to_owned());
        count += 1;
    }
    all.insert("GIT_CONFIG_COUNT".to_owned(), count.to_string());
    all
}
