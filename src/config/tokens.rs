//! The tokens that clients send.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::parse::parse_names;
use super::reader::VariableReader;
use super::table;
use cofferdam_core::values::digest::sha256_of;

/// The longest file of tokens, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest token, bytes: it must fit in the head of a request.
const TOKEN_BYTES_MAX: usize = 1024;
/// A shorter token may be guessed, bytes.
const TOKEN_BYTES_GOOD: usize = 16;
/// The name of the token in `AUTH_TOKEN`.
const NAME_DEFAULT: &str = "default";
/// How much of its digest names a token without a name, digits.
const NAME_DIGITS: usize = 16;

/// The name of a token, which owns what is created with the token; empty without tokens.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenName(Arc<str>);

impl TokenName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<&str> for TokenName {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

/// Tokens, as digests only: a text that is not kept cannot leak.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, PartialEq, Eq)]
struct Token {
    name: TokenName,
    /// The digest of its text, as 64 digits.
    sha256: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|token| token.name.as_str()).collect();
        out.debug_tuple("Tokens").field(&names).finish()
    }
}

impl Tokens {
    /// Makes tokens from pairs of name and text.
    pub fn of<'a>(tokens: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let token = |(name, text): (&str, &str)| Token { name: name.into(), sha256: digest(text) };
        Self(tokens.into_iter().map(token).collect())
    }

    /// Whether requests need no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the token `shown`. Compares it with every token, by whole digests, so that the
    /// time it takes does not depend on how much of a token matches.
    pub fn holder(&self, shown: &[u8]) -> Option<&TokenName> {
        let shown = sha256_of(shown);
        let mut found = 0_u32;
        for (number, token) in (1_u32..).zip(&self.0) {
            let is_it = token.sha256.as_bytes().ct_eq(shown.as_bytes());
            found.conditional_assign(&number, is_it);
        }
        let index = usize::try_from(found.checked_sub(1)?).ok()?;
        self.0.get(index).map(|token| &token.name)
    }

    /// The tokens, and warnings about them. No message shows a token or a part of one.
    pub(super) fn read(reader: &mut VariableReader) -> (Self, Vec<String>) {
        let mut tokens = Vec::new();
        let (token, file) = (&table::AUTH_TOKEN, &table::AUTH_TOKENS_FILE);
        // Compose files pass a variable that is not set as an empty one.
        if let Some(value) = reader.raw(token).filter(|value| !value.is_empty()) {
            match value.to_str().filter(|text| is_token(text)) {
                Some(text) => tokens.push(ReadToken {
                    place: token.name.to_owned(),
                    name: NAME_DEFAULT.to_owned(),
                    text: text.to_owned(),
                }),
                None => reader.problem(format!("{}: want {}", token.name, token.wanted)),
            }
        }
        if !tokens.is_empty() && shows_token_to_runs(reader) {
            let name = table::RUN_ENV_ALLOW.name;
            reader.problem(format!("{name}: want no {}, which no run may see", token.name));
        }
        if let Some(path) = Self::file(reader) {
            match read_file(&path) {
                Ok(more) => tokens.extend(more),
                Err(fault) => {
                    reader.refuse_value(file.name, &fault, &path.display().to_string());
                }
            }
        }
        let short = tokens.iter().filter(|token| token.text.len() < TOKEN_BYTES_GOOD);
        let warning = |ReadToken { place, .. }: &ReadToken| {
            format!("{place}: a token of fewer than {TOKEN_BYTES_GOOD} characters may be guessed")
        };
        let warnings = short.map(warning).collect();
        let pairs = tokens.iter().map(|token| (token.name.as_str(), token.text.as_str()));
        (Self::of(pairs), warnings)
    }

    /// The file of tokens, if one is configured.
    pub(super) fn file(reader: &VariableReader) -> Option<PathBuf> {
        reader.raw(&table::AUTH_TOKENS_FILE).map(PathBuf::from)
    }
}

/// A token as the configuration has it.
#[derive(Debug, PartialEq, Eq)]
struct ReadToken {
    /// The variable or the line, for warnings.
    place: String,
    name: String,
    text: String,
}

fn digest(text: &str) -> String {
    sha256_of(text.as_bytes())
}

fn shows_token_to_runs(reader: &VariableReader) -> bool {
    let names = reader.text(&table::RUN_ENV_ALLOW).and_then(parse_names).unwrap_or_default();
    names.iter().any(|name| name == table::AUTH_TOKEN.name)
}

/// The tokens in a file, or what the file should be.
fn read_file(path: &Path) -> Result<Vec<ReadToken>, String> {
    let unread = |error: io::Error| format!("{} ({error})", table::AUTH_TOKENS_FILE.wanted);
    let file = File::open(path).map_err(unread)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err("a file of at most 1 MiB".to_owned());
    }
    parse(&text)
}

/// Parses a token per line, or a name and a token. A line that begins with `#` is a comment. A token
/// without a name is named by its digest, which stays the same if lines are added before it.
fn parse(text: &str) -> Result<Vec<ReadToken>, String> {
    let mut tokens = Vec::new();
    for (number, line) in (1_usize..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, token) = match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [token] => (digest(token).get(..NAME_DIGITS).unwrap_or_default().to_owned(), token),
            [name, token] if is_token(name) => (name.to_owned(), token),
            _ => return Err(format!("a token, or a name and a token, in line {number}")),
        };
        if !is_token(token) {
            return Err(format!("{} for a token in line {number}", table::AUTH_TOKEN.wanted));
        }
        let place = format!("{} line {number}", table::AUTH_TOKENS_FILE.name);
        tokens.push(ReadToken { place, name, text: token.to_owned() });
    }
    if tokens.is_empty() { Err("at least one token".to_owned()) } else { Ok(tokens) }
}

fn is_token(text: &str) -> bool {
    (1..=TOKEN_BYTES_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_token_has_a_holder() {
        let tokens = Tokens::of([("a", "first-token-of-two"), ("b", "second-token-of-two")]);
        for (shown, holder) in [
            ("first-token-of-two", Some("a")),
            ("second-token-of-two", Some("b")),
            ("first-token-of-tw", None),
            ("first-token-of-twoo", None),
            ("irst-token-of-two", None),
            ("First-token-of-two", None),
            ("", None),
        ] {
            let found = tokens.holder(shown.as_bytes()).map(TokenName::as_str);
            assert_eq!(found, holder, "{shown:?}");
        }
        assert_eq!(Tokens::default().holder(b""), None);
    }

    #[test]
    fn a_token_is_never_shown() {
        let tokens = Tokens::of([("a", "first-token-of-two")]);
        let shown = format!("{tokens:?}");
        assert_eq!(shown, r#"Tokens(["a"])"#);
    }

    #[test]
    fn a_file_has_a_token_a_line_with_names_and_comments() {
        let text = "# who\n\n  one-token-alone \r\nci\tthe-token-of-ci\n #x\n";
        let digest = sha256_of(b"one-token-alone");
        let expected = [
            ("AUTH_TOKENS_FILE line 3", &digest[..16], "one-token-alone"),
            ("AUTH_TOKENS_FILE line 4", "ci", "the-token-of-ci"),
        ];
        let expected = expected.map(|(place, name, text)| ReadToken {
            place: place.to_owned(),
            name: name.to_owned(),
            text: text.to_owned(),
        });
        assert_eq!(parse(text).unwrap(), expected);
        for (text, fault) in [
            ("", "at least one token"),
            ("# only this\n\n", "at least one token"),
            ("a b c\n", "line 1"),
            ("ok-token\nt\u{f6}ken\n", "line 2"),
            ("b\u{e4}d token\n", "line 1"),
            ("a\u{1}b\n", "line 1"),
        ] {
            let told = parse(text).unwrap_err();
            assert!(told.contains(fault), "{text:?}: {told}");
        }
        assert!(parse(&"x".repeat(TOKEN_BYTES_MAX + 1)).is_err());
    }
}
