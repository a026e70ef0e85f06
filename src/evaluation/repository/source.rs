//! Where a task's repository is (pure, but for the paths of the host).

use std::fs;
use std::path::{Path, PathBuf};

use crate::egress::rules::NetworkRules;
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::NetworkObject;

/// Where a repository is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositorySource {
    /// A URL of http or https without user info.
    Url {
        /// The URL as git gets it.
        url: String,
        /// The host as the URL names it, with the brackets of an IPv6 address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The git directory on this host.
    Directory {
        /// Absolute, without links.
        git_directory: PathBuf,
    },
}

/// The directories below which a task may name a repository by its path.
#[derive(Debug, Clone, Default)]
pub struct RepositoryRoots(Vec<PathBuf>);

/// Why a repository may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SourceDenied(pub String);

fn denied(words: impl Into<String>) -> SourceDenied {
    SourceDenied(words.into())
}

impl RepositoryRoots {
    /// The directories, with links resolved.
    ///
    /// # Errors
    /// One is not there; its path.
    pub fn open(paths: &[PathBuf]) -> Result<Self, PathBuf> {
        let real = |path: &PathBuf| fs::canonicalize(path).map_err(|_| path.clone());
        paths.iter().map(real).collect::<Result<_, _>>().map(Self)
    }

    fn locate(&self, path: &Path) -> Result<RepositorySource, SourceDenied> {
        let outside = || denied("a path has to be a repository below one of EVAL_REPO_ROOTS");
        let real = fs::canonicalize(path).map_err(|_| outside())?;
        if !self.0.iter().any(|root| real.starts_with(root) && real != *root) {
            return Err(outside());
        }
        let work_tree = real.join(".git");
        let git_directory = match fs::symlink_metadata(&work_tree) {
            Ok(metadata) if metadata.is_dir() => work_tree,
            // A file or a link leads elsewhere.
            Ok(_) => return Err(outside()),
            Err(_) => real,
        };
        if git_directory.join("objects").is_dir() {
            Ok(RepositorySource::Directory { git_directory })
        } else {
            Err(outside())
        }
    }
}

impl RepositorySource {
    /// Parses the `repo` of a task.
    ///
    /// # Errors
    /// It is neither a URL of http or https without user info nor a repository below `roots`.
    pub fn parse(text: &str, roots: &RepositoryRoots) -> Result<Self, SourceDenied> {
        if text.starts_with('/') {
            return roots.locate(Path::new(text));
        }
        let url = WebUrl::parse(text).map_err(denied)?;
        Ok(Self::Url { url: text.to_owned(), host: url.host().to_owned(), port: url.port() })
    }

    /// The entries of an allow-list that let git reach the repository: at its port and 443.
    pub fn allowed_hosts(&self) -> Vec<String> {
        match self {
            Self::Directory { .. } => Vec::new(),
            Self::Url { host, port: 443, .. } => vec![format!("{host}:443")],
            Self::Url { host, port, .. } => vec![format!("{host}:{port}"), format!("{host}:443")],
        }
    }

    /// What git may reach: the repository's host, with the rules that `terms` has for it. Where `terms` names
    /// hosts in `allow`, it has to be among its hosts.
    ///
    /// # Errors
    /// It is not.
    pub fn network(&self, terms: &NetworkObject) -> Result<NetworkObject, SourceDenied> {
        let narrowed = NetworkRules::narrowed(terms, &self.allowed_hosts());
        let network = narrowed.map_err(|fault| denied(fault.to_string()))?;
        match (self, network.hosts().is_empty()) {
            (Self::Url { host, port, .. }, true) => {
                Err(denied(format!("{host}:{port} is not within EVAL_CLONE_NETWORK")))
            }
            _ => Ok(network),
        }
    }

    /// What caches and digests know it by.
    pub fn identity(&self) -> String {
        match self {
            Self::Url { url, .. } => url.clone(),
            Self::Directory { git_directory } => format!("file:{}", git_directory.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_neither_a_url_nor_a_path_below_a_root_is_denied() {
        let none = RepositoryRoots::default();
        for text in [
            "git@h:a/b",
            "ssh://git@h/a",
            "file:///etc",
            "ext::sh -c 'touch /tmp/x'",
            "--upload-pack=touch /tmp/x",
            "-u",
            "",
            "a/b",
            "/etc",
            "https://u:p@h/a",
        ] {
            assert!(RepositorySource::parse(text, &none).is_err(), "{text}");
        }
    }

    #[test]
    fn git_may_reach_the_port_of_its_url_and_443() {
        let none = RepositoryRoots::default();
        for (url, allowed) in [
            ("https://h/a", &["h:443"][..]),
            ("http://h/a", &["h:80", "h:443"]),
            ("https://[::1]:8443/a", &["[::1]:8443", "[::1]:443"]),
        ] {
            assert_eq!(RepositorySource::parse(url, &none).unwrap().allowed_hosts(), allowed);
        }
    }

    #[test]
    fn git_has_the_rules_of_its_own_host_alone() {
        let none = RepositoryRoots::default();
        let terms = |allow: &str| -> NetworkObject {
            let rules = r#""git.example": [{"path": "/a"}], "*.example": [{"path": "/b"}],
                           "other.test:8080": [{"plain": true}]"#;
            serde_json::from_str(&format!(r#"{{"allow": {allow}, "rules": {{{rules}}}}}"#)).unwrap()
        };
        for (url, allow, expected) in [
            ("https://git.example/r", "[]", Some((&[][..], &[("git.example:443", "/a")][..]))),
            ("https://x.example/r", "[]", Some((&[], &[("x.example:443", "/b")]))),
            ("https://example/r", "[]", Some((&["example:443"], &[]))),
            (
                "http://other.test:8080/r",
                "[]",
                Some((&["other.test:443"], &[("other.test:8080", "*")])),
            ),
            ("http://other.test:8080/r", r#"["h"]"#, Some((&[], &[("other.test:8080", "*")]))),
            ("https://h/r", r#"["h"]"#, Some((&["h:443"], &[]))),
            ("https://g/r", r#"["h"]"#, None),
        ] {
            let source = RepositorySource::parse(url, &none).unwrap();
            let network = source.network(&terms(allow));
            let Some((hosts, rules)) = expected else {
                assert!(network.is_err(), "{url}");
                continue;
            };
            let network = network.unwrap();
            assert_eq!(network.allow, hosts, "{url}");
            let path = |rules: &Vec<cofferdam_core::RuleObject>| {
                rules[0].path.clone().unwrap_or_else(|| "*".to_owned())
            };
            let found: Vec<_> =
                network.rules.iter().map(|(key, rules)| (key.clone(), path(rules))).collect();
            let rules: Vec<_> =
                rules.iter().map(|(key, path)| ((*key).to_owned(), (*path).to_owned())).collect();
            assert_eq!(found, rules, "{url}");
        }
    }

    #[test]
    fn a_path_has_to_be_a_repository_below_a_root() {
        let all = tempfile::tempdir().unwrap();
        let root = all.path().join("root");
        for git_directory in ["root/bare.git", "root/work/.git", "other"] {
            fs::create_dir_all(all.path().join(git_directory).join("objects")).unwrap();
        }
        fs::create_dir_all(root.join("none")).unwrap();
        fs::create_dir_all(root.join("linked")).unwrap();
        fs::write(root.join("linked/.git"), "gitdir: ../../other").unwrap();
        std::os::unix::fs::symlink(all.path().join("other"), root.join("out")).unwrap();
        let roots = RepositoryRoots::open(std::slice::from_ref(&root)).unwrap();
        let real = fs::canonicalize(&root).unwrap();
        for (path, expected) in [
            ("bare.git", Some("bare.git")),
            ("work", Some("work/.git")),
            ("work/../bare.git", Some("bare.git")),
            ("none", None),
            ("linked", None),
            ("out", None),
            ("../other", None),
            ("absent", None),
            ("", None),
        ] {
            let text = root.join(path).display().to_string();
            let expected =
                expected.map(|path| RepositorySource::Directory { git_directory: real.join(path) });
            assert_eq!(RepositorySource::parse(&text, &roots).ok(), expected, "{path}");
        }
    }
}
