//! Which commit a task means (pure).

use std::collections::BTreeMap;

/// The fewest digits of a short hash.
const SHORT_DIGITS_MIN: usize = 4;
/// The digits of a full one.
const FULL_DIGITS: usize = 40;
/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 255;
/// What stands behind the name of an annotated tag whose line names the commit.
const PEELED: &str = "^{}";

/// The `base_commit` of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revision {
    /// A full hash.
    Full(String),
    /// The name of a branch or tag. It may also be the beginning of a hash.
    Name(String),
}

impl Revision {
    /// Parses it; `None` if no commit can have that name.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() == FULL_DIGITS && is_hexadecimal(text) {
            return Some(Self::Full(text.to_ascii_lowercase()));
        }
        is_ref_name(text).then(|| Self::Name(text.to_owned()))
    }

    /// As the task names it.
    pub fn text(&self) -> &str {
        match self {
            Self::Full(text) | Self::Name(text) => text,
        }
    }

    /// The digits, if it may be the beginning of a hash.
    pub fn short_hash(&self) -> Option<String> {
        let Self::Name(text) = self else { return None };
        let fits = (SHORT_DIGITS_MIN..FULL_DIGITS).contains(&text.len()) && is_hexadecimal(text);
        fits.then(|| text.to_ascii_lowercase())
    }
}

fn is_hexadecimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether git takes `text` for the name of a branch or tag.
pub fn is_ref_name(text: &str) -> bool {
    let is_byte = |byte: u8| byte > b' ' && byte != 0x7f && !b"~^:?*[\\".contains(&byte);
    let is_part =
        |part: &str| !part.is_empty() && !part.starts_with('.') && !part.ends_with(".lock");
    (1..=NAME_BYTES_MAX).contains(&text.len())
        && !text.starts_with('-')
        && text != "@"
        && !text.ends_with('.')
        && !text.contains("..")
        && !text.contains("@{")
        && text.bytes().all(is_byte)
        && text.split('/').all(is_part)
}

/// The branches and tags of a repository, each with its commit, as the server lists them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefList {
    branches: BTreeMap<String, String>,
    tags: BTreeMap<String, String>,
}

impl RefList {
    /// Parses what `git ls-remote` and `git for-each-ref` with the same format print. Lines that git
    /// itself would not accept are left out.
    pub fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for line in text.lines() {
            let Some((hash, name)) = line.split_once('\t') else { continue };
            if hash.len() != FULL_DIGITS || !is_hexadecimal(hash) {
                continue;
            }
            let hash = hash.to_ascii_lowercase();
            if let Some(branch) = name.strip_prefix("refs/heads/").filter(|name| is_ref_name(name))
            {
                list.branches.insert(branch.to_owned(), hash);
            } else if let Some(tag) = name.strip_prefix("refs/tags/") {
                let (tag, is_peeled) =
                    tag.strip_suffix(PEELED).map_or((tag, false), |tag| (tag, true));
                if is_ref_name(tag) && (is_peeled || !list.tags.contains_key(tag)) {
                    list.tags.insert(tag.to_owned(), hash);
                }
            }
        }
        list
    }

    /// The commit of the tag `name`, or else of the branch.
    pub fn find(&self, name: &str) -> Option<&str> {
        let name =
            name.strip_prefix("refs/tags/").or(name.strip_prefix("refs/heads/")).unwrap_or(name);
        self.tags.get(name).or_else(|| self.branches.get(name)).map(String::as_str)
    }

    /// The tags, sorted by name, each with its commit.
    pub fn tags(&self) -> impl Iterator<Item = (&str, &str)> {
        self.tags.iter().map(|(name, hash)| (name.as_str(), hash.as_str()))
    }
}

/// The file `packed-refs` of a repository with one branch `branch` at `commit` and `tags`, sorted by name.
/// Of two tags of which one would be a directory of the other, the first stays.
pub fn packed_refs<'a>(
    branch: &str,
    commit: &str,
    tags: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text =
        format!("# pack-refs with: peeled fully-peeled sorted \n{commit} refs/heads/{branch}\n");
    let mut kept: Vec<&str> = Vec::new();
    for (name, hash) in tags {
        let is_below =
            |other: &&str| name.strip_prefix(*other).is_some_and(|rest| rest.starts_with('/'));
        if !kept.iter().rev().any(is_below) {
            text += &format!("{hash} refs/tags/{name}\n");
            // Only those that begin as this one does can be its directory.
            kept.retain(|other| name.starts_with(*other));
            kept.push(name);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

    #[test]
    fn a_commit_is_a_hash_or_a_name_and_never_an_option() {
        for (text, full, short) in [
            (A, true, None),
            (&A.to_uppercase(), true, None),
            ("abc123", false, Some("abc123")),
            ("ABC1", false, Some("abc1")),
            ("abc", false, None),
            ("v1.0", false, None),
            ("release/1.x", false, None),
        ] {
            let revision = Revision::parse(text).unwrap();
            assert_eq!(matches!(revision, Revision::Full(_)), full, "{text}");
            assert_eq!(revision.short_hash().as_deref(), short, "{text}");
        }
        for text in [
            "",
            "-f",
            "--upload-pack=x",
            "a b",
            "a..b",
            "HEAD~1",
            "a^",
            "a:b",
            "@",
            "a@{1}",
            "/a",
            "a/",
            "a//b",
            ".a",
            "a/.b",
            "a.lock",
            "a.",
            "a\nb",
            "a\u{7f}",
            "a*",
            "a?",
            "a[",
            "a\\b",
        ] {
            assert_eq!(Revision::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn an_annotated_tag_is_its_commit_and_a_tag_comes_before_a_branch() {
        let text = format!(
            "{B}\tHEAD\n{B}\trefs/heads/main\n{B}\trefs/heads/v1\n{A}\trefs/heads/a b\n{B}\trefs/tags/v1\n\
             {A}\trefs/tags/v1^{{}}\n{A}\trefs/tags/-x\nshort\trefs/tags/v2\n{A}\trefs/pull/1/head\n"
        );
        let list = RefList::parse(&text);
        assert_eq!(list.find("v1"), Some(A));
        assert_eq!(list.find("main"), Some(B));
        assert_eq!(list.find("refs/heads/main"), Some(B));
        for absent in ["HEAD", "a b", "-x", "v2", "pull/1/head"] {
            assert_eq!(list.find(absent), None, "{absent}");
        }
        assert_eq!(list.tags().collect::<Vec<_>>(), [("v1", A)]);
    }

    #[test]
    fn refs_are_written_sorted_and_none_is_a_directory_of_another() {
        let tags = [("a", A), ("a/b", B), ("a/b/c", B), ("a0", A), ("a0/x", A), ("b", B)];
        let text = packed_refs("main", A, tags.into_iter());
        let wanted = format!(
            "# pack-refs with: peeled fully-peeled sorted \n{A} refs/heads/main\n{A} refs/tags/a\n\
             {A} refs/tags/a0\n{B} refs/tags/b\n"
        );
        assert_eq!(text, wanted);
    }
}
