//! What names an artifact: whose it is, its app, user and session, and its name.

use serde::{Deserialize, Serialize};

use crate::workspace::error::EngineError;
use crate::workspace::helpers::parse_artifact_ref;
use cofferdam_core::values::digest::Digest;

/// The longest name, bytes.
pub const NAME_BYTES_MAX: usize = 1024;
/// The longest app, user or session, bytes.
pub const SESSION_PART_BYTES_MAX: usize = 256;

/// What artifacts with the same names are told apart by.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArtifactScope {
    /// The name of the token that owns them; empty without tokens.
    pub owner: String,
    /// The application.
    pub app: String,
    /// The application's user.
    pub user: String,
    /// The user's session.
    pub session: String,
}

/// The name of one artifact.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArtifactKey {
    /// Whose it is.
    #[serde(flatten)]
    scope: ArtifactScope,
    /// Its name.
    name: String,
}

impl ArtifactScope {
    /// The artifacts of `owner` in the session of an app's user; each of these can be empty.
    ///
    /// # Errors
    /// The one that is too long.
    pub fn new(owner: &str, app: &str, user: &str, session: &str) -> Result<Self, EngineError> {
        for (part, text) in [("app", app), ("user", user), ("session", session)] {
            if text.len() > SESSION_PART_BYTES_MAX {
                let words = format!("longer than {SESSION_PART_BYTES_MAX} bytes");
                return Err(EngineError::invalid(part, words));
            }
        }
        let [owner, app, user, session] = [owner, app, user, session].map(str::to_owned);
        Ok(Self { owner, app, user, session })
    }

    /// The name of its directory. Texts of any characters name the same file on every file system.
    pub(super) fn directory(&self) -> String {
        let Self { owner, app, user, session } = self;
        hashed([owner, app, user, session])
    }
}

impl ArtifactKey {
    /// The artifact `name` of `scope`.
    ///
    /// # Errors
    /// The name is empty or too long, contains `..`, or ends like a version.
    pub fn new(scope: ArtifactScope, name: &str) -> Result<Self, EngineError> {
        let fault = |words: String| Err(EngineError::invalid("name", words));
        if name.is_empty() || name.len() > NAME_BYTES_MAX {
            return fault(format!("want 1 to {NAME_BYTES_MAX} bytes"));
        }
        if name.contains("..") {
            return fault("must not contain \"..\"".to_owned());
        }
        match parse_artifact_ref(name) {
            Ok((_, None)) => Ok(Self { scope, name: name.to_owned() }),
            _ => fault("must not end with \"@\" and a number, which is a version".to_owned()),
        }
    }

    /// Whose it is.
    pub fn scope(&self) -> &ArtifactScope {
        &self.scope
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The path of its directory.
    pub(super) fn path(&self) -> String {
        format!("{}/{}", self.scope.directory(), self.directory())
    }

    /// The name of its directory in that of its scope.
    pub(super) fn directory(&self) -> String {
        hashed([&self.name])
    }
}

/// A digest that other texts do not have, however they are divided.
fn hashed<const N: usize>(texts: [&String; N]) -> String {
    let mut digest = Digest::default();
    for text in texts {
        digest.update(&(text.len() as u64).to_le_bytes());
        digest.update(text.as_bytes());
    }
    digest.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_any_text_that_is_neither_a_path_upwards_nor_a_version() {
        let scope = ArtifactScope::default;
        let longest = "é".repeat(NAME_BYTES_MAX / 2);
        for name in [
            "a",
            "a/b.txt",
            "/a",
            "a b",
            "é\u{1f600}",
            "a@",
            "a@v1",
            "a@b@c",
            ".",
            "a.b",
            "\0",
            "con",
            "a\nb",
            "%2e%2e",
            "key.json",
            "0",
            &longest,
        ] {
            assert_eq!(ArtifactKey::new(scope(), name).unwrap().name(), name);
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        let number = "a@99999999999999999999999";
        for name in ["", "..", "../a", "a/../b", "a..b", "x@1", "x@007", "@1", number, &long] {
            let error = ArtifactKey::new(scope(), name).unwrap_err();
            assert_eq!(error.details["path"], "name", "{name:?}");
        }
        let long = "a".repeat(SESSION_PART_BYTES_MAX + 1);
        let error = ArtifactScope::new("", "", &long, "").unwrap_err();
        assert_eq!(error.details["path"], "user");
    }

    #[test]
    fn other_owners_and_sessions_have_other_directories() {
        let scopes = [
            ["", "", "", ""],
            ["a", "", "", ""],
            ["", "a", "", ""],
            ["", "", "a", ""],
            ["", "", "", "a"],
            ["ab", "", "", ""],
            ["a", "b", "", ""],
        ];
        let scopes = scopes.map(|[owner, app, user, session]| {
            ArtifactScope::new(owner, app, user, session).unwrap().directory()
        });
        let different: std::collections::BTreeSet<_> = scopes.iter().collect();
        assert_eq!(different.len(), scopes.len());
    }
}
