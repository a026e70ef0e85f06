//! A list of hosts.

use super::entry::AllowEntry;
use super::literal::AskedHost;

/// A list of hosts, as a request or the configuration names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowList {
    texts: Vec<String>,
    entries: Vec<AllowEntry>,
}

/// An entry that is not one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?}: {why}")]
pub struct EgressEntryError {
    /// Its place in the list, from 0.
    pub index: usize,
    /// The entry.
    pub entry: String,
    /// Why the entry is invalid.
    pub why: &'static str,
}

impl AllowList {
    /// Parses `entries`, or names the first that is not one.
    pub fn parse(entries: &[String]) -> Result<Self, EgressEntryError> {
        let parse = |(index, text): (usize, &String)| {
            let entry = text.clone();
            AllowEntry::parse(text).map_err(|why| EgressEntryError { index, entry, why })
        };
        let parsed = entries.iter().enumerate().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { texts: entries.to_vec(), entries: parsed })
    }

    /// The entries as they were given.
    pub fn entries(&self) -> &[String] {
        &self.texts
    }

    /// Whether the list names nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether each entry lies within one of `maximum`; otherwise the first that does not.
    pub fn is_within(&self, maximum: &Self) -> Result<(), String> {
        let is_covered = |entry| maximum.entries.iter().any(|larger| larger.covers(entry));
        match self.entries.iter().position(|entry| !is_covered(entry)) {
            Some(outside) => Err(self.texts.get(outside).cloned().unwrap_or_default()),
            None => Ok(()),
        }
    }

    /// Whether an entry names all that `entry` names.
    pub fn covers(&self, entry: &AllowEntry) -> bool {
        self.entries.iter().any(|larger| larger.covers(entry))
    }

    /// Whether an entry names `host` and `port`.
    pub fn allows(&self, host: &AskedHost, port: u16) -> bool {
        self.entries.iter().any(|entry| entry.matches(host, port))
    }

    /// Whether an entry names `host`, at `port` if it names a port.
    pub fn permits(&self, host: &AskedHost, port: u16) -> bool {
        self.entries.iter().any(|entry| entry.matches_unless_port_differs(host, port))
    }

    /// Whether an entry names `host`, at whatever port.
    pub fn names(&self, host: &AskedHost) -> bool {
        self.entries.iter().any(|entry| entry.names(host))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[&str]) -> AllowList {
        let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
        AllowList::parse(&entries).unwrap()
    }

    fn asked(host: &str) -> AskedHost {
        AskedHost::parse(host).unwrap()
    }

    #[test]
    fn an_entry_names_its_hosts_and_ports_alone() {
        for (entry, host, port, is_allowed) in [
            ("pypi.org", "pypi.org", 443, true),
            ("pypi.org", "PYPI.org.", 443, true),
            ("PyPI.org.", "pypi.org", 443, true),
            ("pypi.org", "pypi.org", 80, false),
            ("pypi.org", "www.pypi.org", 443, false),
            ("pypi.org", "xpypi.org", 443, false),
            ("pypi.org", "pypi.org.evil.example", 443, false),
            ("pypi.org:8080", "pypi.org", 8080, true),
            ("pypi.org:8080", "pypi.org", 443, false),
            ("pypi.org:*", "pypi.org", 1, true),
            ("*.pypi.org", "files.pypi.org", 443, true),
            ("*.pypi.org", "a.b.pypi.org", 443, true),
            ("*.pypi.org", "pypi.org", 443, false),
            ("*.pypi.org", "xpypi.org", 443, false),
            ("*.pypi.org:80", "a.pypi.org", 80, true),
            ("*.pypi.org:*", "a.pypi.org", 81, true),
            ("127.0.0.1:80", "127.0.0.1", 80, true),
            ("127.0.0.1:80", "0x7f.1", 80, true),
            ("127.0.0.1:80", "[::ffff:7f00:1]", 80, true),
            ("127.0.0.1:80", "127.0.0.2", 80, false),
            ("127.0.0.1:80", "localhost", 80, false),
            ("::ffff:1.2.3.4", "1.2.3.4", 443, true),
            ("10.0.0.0/8:*", "10.9.8.7", 22, true),
            ("10.0.0.0/8", "10.9.8.7", 443, true),
            ("10.0.0.0/8", "11.0.0.0", 443, false),
            ("::1", "[::1]", 443, true),
            ("[::1]:8080", "[0::1]", 8080, true),
            ("fd00::/8", "[fd12::1]", 443, true),
            ("[fd00::/8]:80", "[fd12::1]", 80, true),
            ("[fd00::]/8:80", "[fd12::1]", 80, true),
            ("[fd00::]/8", "[fe12::1]", 443, false),
            ("[fe80::]/10:*", "[fe80::1%251]", 80, false),
            ("0.0.0.0/0:*", "256.0.0.1", 80, false),
        ] {
            assert_eq!(
                list(&[entry]).allows(&asked(host), port),
                is_allowed,
                "{entry} {host}:{port}"
            );
        }
    }

    #[test]
    fn what_is_no_entry_is_named() {
        for entry in [
            "",
            ".",
            "*",
            "*:443",
            "*.",
            "*.*.a",
            "a.*",
            "a*",
            "a:0",
            "a:65536",
            "a:080",
            "a:+1",
            "a:",
            "a:b",
            "a:1:2",
            "http://a",
            "a/b",
            "a b",
            " a",
            "a@b",
            "bücher.example",
            "1.2.3",
            "0x7f.0.0.1",
            "2130706433",
            "010.0.0.1",
            "256.1.1.1",
            "*.1",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0.0/",
            "a/8",
            "10.0.0.0/+8",
            "[::1",
            "[::1]x",
            "[]",
            "[a]",
            "::1::",
            "fe80::1%1",
        ] {
            let entries = ["good.example".to_owned(), entry.to_owned()];
            let error = AllowList::parse(&entries).expect_err(entry);
            assert_eq!((error.index, error.entry.as_str()), (1, entry));
            assert!(error.to_string().contains(&format!("{entry:?}")), "{error}");
        }
    }

    #[test]
    fn a_list_lies_within_another_by_the_grammar() {
        for (maximum, entry, is_within) in [
            ("pypi.org", "pypi.org", true),
            ("pypi.org", "PYPI.org:443", true),
            ("pypi.org:443", "pypi.org", true),
            ("pypi.org", "pypi.org:80", false),
            ("pypi.org", "pypi.org:*", false),
            ("pypi.org:*", "pypi.org:*", true),
            ("pypi.org:*", "pypi.org:80", true),
            ("*.pypi.org", "a.pypi.org", true),
            ("*.pypi.org", "*.pypi.org", true),
            ("*.pypi.org", "*.a.pypi.org", true),
            ("*.pypi.org", "pypi.org", false),
            ("*.a.pypi.org", "*.pypi.org", false),
            ("a.pypi.org", "*.pypi.org", false),
            ("10.0.0.0/8", "10.1.0.0/16", true),
            ("10.0.0.0/8", "10.1.2.3", true),
            ("10.0.0.0/16", "10.0.0.0/8", false),
            ("10.1.2.3", "10.1.2.3/32", true),
            ("0.0.0.0/0:*", "::1", false),
            ("0.0.0.0/0:*", "pypi.org", false),
            ("::/0", "::ffff:1.2.3.4", false),
        ] {
            let result =
                list(&["other.example", entry]).is_within(&list(&[maximum, "other.example"]));
            assert_eq!(
                result,
                if is_within { Ok(()) } else { Err(entry.to_owned()) },
                "{maximum} {entry}"
            );
        }
        assert_eq!(list(&[]).is_within(&list(&[])), Ok(()));
    }

    #[test]
    fn a_permitted_host_may_be_named_without_its_port() {
        let hosts = list(&["127.0.0.1", "10.0.0.0/8:80", "db.internal"]);
        for (host, port, is_permitted) in [
            ("127.0.0.1", 43_211, true),
            ("10.1.1.1", 80, true),
            ("10.1.1.1", 81, false),
            ("db.internal", 5432, true),
            ("other.internal", 443, false),
        ] {
            assert_eq!(hosts.permits(&asked(host), port), is_permitted, "{host}:{port}");
        }
    }
}
