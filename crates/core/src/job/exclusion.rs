//! Names that are never part of a job's workspace. The secrets among them are never artifacts.

use super::result::ExcludedGroup;

/// Names by group. A `*` matches any text. Matching ignores case.
const NAMES: &[(ExcludedGroup, &[&str])] = &[
    (ExcludedGroup::Vcs, &[".git", ".hg", ".svn", ".bzr", ".jj"]),
    (
        ExcludedGroup::Virtualenv,
        &[".venv", "venv", "env", "virtualenv", ".virtualenv", ".tox", ".nox"],
    ),
    (ExcludedGroup::Build, &["target"]),
    (ExcludedGroup::Dependencies, &["node_modules", "bower_components"]),
    (
        ExcludedGroup::Caches,
        &[
            "__pycache__",
            ".pytest_cache",
            ".mypy_cache",
            ".ruff_cache",
            ".cache",
            ".gradle",
            ".m2",
            ".npm",
            ".pnpm-store",
        ],
    ),
    (
        ExcludedGroup::Secrets,
        &[
            ".env*",
            "*.pem",
            "*.key",
            "*.p12",
            "*.pfx",
            "id_rsa*",
            "id_ed25519*",
            "id_ecdsa*",
            "id_dsa*",
            ".ssh",
            ".aws",
            ".gnupg",
            ".netrc",
            ".npmrc",
            ".pypirc",
            "credentials*.json",
            "secrets",
            ".secrets",
        ],
    ),
];
/// Directories that are excluded only inside a directory with a certain name: group, parent, name.
const NESTED: &[(ExcludedGroup, &str, &str)] = &[
    (ExcludedGroup::Dependencies, "vendor", "bundle"),
    (ExcludedGroup::Caches, ".yarn", "cache"),
    (ExcludedGroup::Caches, ".cargo", "registry"),
];
/// Groups that apply only to directories: a file named `env` or `target` may be anything.
const DIRECTORIES_ONLY: [ExcludedGroup; 3] =
    [ExcludedGroup::Virtualenv, ExcludedGroup::Build, ExcludedGroup::Dependencies];

/// The group that excludes the entry `name` in the directory named `parent` (empty at the top);
/// `None` if the entry may be copied.
pub fn excluded_group(parent: &[u8], name: &[u8], is_directory: bool) -> Option<ExcludedGroup> {
    let by_name = NAMES.iter().find(|(group, patterns)| {
        (is_directory || !DIRECTORIES_ONLY.contains(group))
            && patterns.iter().any(|pattern| is_named(pattern.as_bytes(), name))
    });
    let nested = || {
        NESTED.iter().find(|(_, within, nested)| {
            is_directory
                && parent.eq_ignore_ascii_case(within.as_bytes())
                && name.eq_ignore_ascii_case(nested.as_bytes())
        })
    };
    by_name.map(|(group, _)| *group).or_else(|| nested().map(|(group, ..)| *group))
}

fn is_named(pattern: &[u8], name: &[u8]) -> bool {
    match pattern.iter().position(|byte| *byte == b'*') {
        None => name.eq_ignore_ascii_case(pattern),
        Some(at) => {
            let (before, after) = (&pattern[..at], &pattern[at + 1..]);
            name.len() >= before.len() + after.len()
                && name[..before.len()].eq_ignore_ascii_case(before)
                && name[name.len() - after.len()..].eq_ignore_ascii_case(after)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &str, is_directory: bool) -> Option<ExcludedGroup> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        excluded_group(parent.as_bytes(), name.as_bytes(), is_directory)
    }

    #[test]
    fn each_rule_has_its_group() {
        for (path, is_directory, expected) in [
            (".git", true, Some(ExcludedGroup::Vcs)),
            (".git", false, Some(ExcludedGroup::Vcs)),
            ("venv", true, Some(ExcludedGroup::Virtualenv)),
            ("env", false, None),
            ("target", true, Some(ExcludedGroup::Build)),
            ("target", false, None),
            ("node_modules", true, Some(ExcludedGroup::Dependencies)),
            ("vendor/bundle", true, Some(ExcludedGroup::Dependencies)),
            ("bundle", true, None),
            (".yarn/cache", true, Some(ExcludedGroup::Caches)),
            ("__pycache__", true, Some(ExcludedGroup::Caches)),
            (".env", false, Some(ExcludedGroup::Secrets)),
            (".ENV", false, Some(ExcludedGroup::Secrets)),
            (".env.local", false, Some(ExcludedGroup::Secrets)),
            (".envrc", false, Some(ExcludedGroup::Secrets)),
            (".env", true, Some(ExcludedGroup::Secrets)),
            ("x.env", false, None),
            ("tls.key", false, Some(ExcludedGroup::Secrets)),
            ("key", false, None),
            ("id_rsa.pub", false, Some(ExcludedGroup::Secrets)),
            ("credentials.json", false, Some(ExcludedGroup::Secrets)),
            ("credentials-x.json", false, Some(ExcludedGroup::Secrets)),
            ("secrets", true, Some(ExcludedGroup::Secrets)),
            ("main.py", false, None),
        ] {
            assert_eq!(group(path, is_directory), expected, "{path}");
        }
    }
}
