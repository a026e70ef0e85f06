//! The tokens that clients show.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use subtle::{ConditionallySelectable, ConstantTimeEq};

use super::parse::parse_names;
use super::{RawConfig, TOKEN, TOKENS_FILE};
use cofferdam_core::values::digest::sha256_of;

/// The longest file of tokens, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// The longest token, bytes: it has to fit in a head.
const TOKEN_BYTES_MAX: usize = 1024;
/// Below it a token may be found by trying, bytes.
const TOKEN_BYTES_GOOD: usize = 16;
/// What one looks like.
const WANTED: &str = "1 to 1024 visible characters of ASCII";

/// Tokens, as digests alone: a text that is kept nowhere can be shown to nobody.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tokens(Vec<Token>);

#[derive(Clone, PartialEq, Eq)]
struct Token {
    /// Whose it is, for the log.
    name: String,
    /// Of its text, as 64 digits.
    sha256: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|token| token.name.as_str()).collect();
        out.debug_tuple("Tokens").field(&names).finish()
    }
}

impl Tokens {
    /// Of `(name, text)` each.
    pub fn of<'a>(tokens: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let token =
            |(name, text): (&str, &str)| Token { name: name.to_owned(), sha256: digest(text) };
        Self(tokens.into_iter().map(token).collect())
    }

    /// Whether none is asked for.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whose token `shown` is, if it is one. The time it takes says nothing of how near it came:
    /// digests are compared, whole, and all of them.
    pub fn holder(&self, shown: &[u8]) -> Option<&str> {
        let shown = sha256_of(shown);
        let mut found = 0_u32;
        for (number, token) in (1_u32..).zip(&self.0) {
            let is_it = token.sha256.as_bytes().ct_eq(shown.as_bytes());
            found.conditional_assign(&number, is_it);
        }
        let index = usize::try_from(found.checked_sub(1)?).ok()?;
        self.0.get(index).map(|token| token.name.as_str())
    }
}

fn digest(text: &str) -> String {
    sha256_of(text.as_bytes())
}

impl RawConfig {
    /// The tokens, and what deserves a word. Nothing told here shows a token, or a part of one.
    pub(super) fn tokens(&mut self) -> (Tokens, Vec<String>) {
        let mut tokens = Vec::new();
        if let Some(value) = self.values.get(OsStr::new(TOKEN)) {
            match value.to_str().filter(|text| is_token(text)) {
                Some(text) => tokens.push((TOKEN.to_owned(), text.to_owned())),
                None => self.problems.push(format!("{TOKEN}: want {WANTED}")),
            }
        }
        if !tokens.is_empty() && self.shows_token_to_runs() {
            self.problems.push(format!("RUN_ENV_ALLOW: want no {TOKEN}, which no run may see"));
        }
        if let Some(path) = self.tokens_file() {
            match read(&path) {
                Ok(more) => tokens.extend(more),
                Err(fault) => self.problems.push(format!(
                    "{TOKENS_FILE}: want {fault}, got {:?}",
                    path.display().to_string()
                )),
            }
        }
        let short = tokens.iter().filter(|(_, text)| text.len() < TOKEN_BYTES_GOOD);
        let warning = |(name, _): &(String, String)| {
            format!("{name}: a token of fewer than {TOKEN_BYTES_GOOD} characters may be guessed")
        };
        let warnings = short.map(warning).collect();
        (Tokens::of(tokens.iter().map(|(name, text)| (name.as_str(), text.as_str()))), warnings)
    }

    /// Where the file is, if there is to be one.
    pub(super) fn tokens_file(&self) -> Option<PathBuf> {
        self.values.get(OsStr::new(TOKENS_FILE)).map(PathBuf::from)
    }

    fn shows_token_to_runs(&self) -> bool {
        let names = self.text("RUN_ENV_ALLOW").and_then(parse_names).unwrap_or_default();
        names.iter().any(|name| name == TOKEN)
    }
}

/// The names and texts in a file, or what is wanted of it.
fn read(path: &Path) -> Result<Vec<(String, String)>, String> {
    let unread = |error: io::Error| format!("a file that can be read ({error})");
    let file = File::open(path).map_err(unread)?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err("a file of at most 1 MiB".to_owned());
    }
    parse(&text)
}

/// A token a line, or a name and a token. A line that begins with `#` says nothing.
fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut tokens = Vec::new();
    for (number, line) in (1_usize..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, token) = match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
            [token] => (format!("{TOKENS_FILE} line {number}"), token),
            [name, token] if is_token(name) => (name.to_owned(), token),
            _ => return Err(format!("a token, or a name and a token, in line {number}")),
        };
        if !is_token(token) {
            return Err(format!("{WANTED} for a token in line {number}"));
        }
        tokens.push((name, token.to_owned()));
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
    fn only_the_whole_token_is_known_and_says_whose_it_is() {
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
            assert_eq!(tokens.holder(shown.as_bytes()), holder, "{shown:?}");
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
        let expected = [("AUTH_TOKENS_FILE line 3", "one-token-alone"), ("ci", "the-token-of-ci")];
        assert_eq!(parse(text).unwrap(), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
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
