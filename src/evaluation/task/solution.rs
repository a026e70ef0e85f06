//! The paths that a patch in git's format changes.

use std::collections::BTreeSet;

/// The paths in the repository that `patch` changes, with both names of what it moves; sorted.
pub fn changed_paths(patch: &str) -> Vec<String> {
    let mut paths = BTreeSet::new();
    let mut lines_of_hunk = (0_u64, 0_u64);
    for line in patch.lines() {
        if lines_of_hunk != (0, 0) {
            skip_line(line, &mut lines_of_hunk);
            continue;
        }
        if let Some(hunk) = line.strip_prefix("@@ -") {
            lines_of_hunk = hunk_lines(hunk);
        } else if let Some(names) = line.strip_prefix("diff --git ") {
            paths.extend(names_of_header(names));
        } else if let Some(name) = line.strip_prefix("--- ").or_else(|| line.strip_prefix("+++ ")) {
            paths.extend(side(name));
        } else if let Some(name) = ["rename from ", "rename to ", "copy to "]
            .iter()
            .find_map(|word| line.strip_prefix(word))
        {
            paths.insert(unquoted(name));
        }
    }
    paths.into_iter().collect()
}

/// Counts a line of a hunk. A line of another kind ends the hunk.
fn skip_line(line: &str, (old, new): &mut (u64, u64)) {
    match line.as_bytes().first() {
        Some(b'-') => *old = old.saturating_sub(1),
        Some(b'+') => *new = new.saturating_sub(1),
        Some(b'\\') => {}
        // Programs cut the blank of an empty line.
        Some(b' ') | None => (*old, *new) = (old.saturating_sub(1), new.saturating_sub(1)),
        Some(_) => (*old, *new) = (0, 0),
    }
}

/// The lines of a hunk on both sides, from `1,5 +1,7 @@`.
fn hunk_lines(hunk: &str) -> (u64, u64) {
    let count = |range: &str| match range.split_once(',') {
        Some((_, count)) => count.parse().unwrap_or(0),
        None => 1,
    };
    let mut ranges = hunk.split(' ');
    let old = ranges.next().map_or(0, count);
    (old, ranges.next().map_or(0, count))
}

/// The name after `---` or `+++`; none for `/dev/null`.
fn side(name: &str) -> Option<String> {
    // Programs add a tab and a time.
    let name = unquoted(name.split('\t').next().unwrap_or_default());
    let path = name.strip_prefix("a/").or_else(|| name.strip_prefix("b/"))?;
    (!path.is_empty()).then(|| path.to_owned())
}

/// The names of `a/x b/x`. Without quotes they can be told apart only where they are equal; where they are
/// not, other lines give them.
fn names_of_header(names: &str) -> Vec<String> {
    if names.starts_with('"') {
        let mut quoted = names.split("\" ");
        return quoted.next().and_then(|first| side(&format!("{first}\""))).into_iter().collect();
    }
    let half = names.len().saturating_sub(1) / 2;
    match (names.get(..half), names.get(half + 1..)) {
        (Some(old), Some(new)) if old.strip_prefix("a/") == new.strip_prefix("b/") => {
            side(old).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// A name as git writes it: in quotes with octal escapes if it is unusual.
fn unquoted(name: &str) -> String {
    let Some(inner) = name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) else {
        return name.to_owned();
    };
    let mut bytes = Vec::new();
    let mut rest = inner.bytes();
    while let Some(byte) = rest.next() {
        let escaped = if byte == b'\\' { rest.next() } else { None };
        bytes.push(match escaped {
            None => byte,
            Some(b'n') => b'\n',
            Some(b't') => b'\t',
            Some(first @ b'0'..=b'3') => {
                let digits = [Some(first), rest.next(), rest.next()];
                digits.iter().flatten().fold(0_u8, |value, digit| {
                    value.wrapping_mul(8).wrapping_add(digit.wrapping_sub(b'0'))
                })
            }
            Some(other) => other,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_names_its_paths() {
        let patch = "From: someone\n\
            diff --git a/src/a.py b/src/a.py\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@\n \n--- a/no\n+++ b/no\n\
            diff --git a/old name b/new name\nsimilarity index 100%\nrename from old name\nrename to new name\n\
            diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\
            diff --git a/data bin b/data bin\nGIT binary patch\nliteral 3\nKabc\n\n\
            diff --git \"a/\\303\\251.py\" \"b/\\303\\251.py\"\n--- \"a/\\303\\251.py\"\n+++ \"b/\\303\\251.py\"\n\
            @@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n\
            diff --git a/mode b/mode\nold mode 100644\nnew mode 100755\n";
        assert_eq!(
            changed_paths(patch),
            ["data bin", "gone", "mode", "new name", "old name", "src/a.py", "é.py"]
        );
        assert!(changed_paths("no patch\n--- x\n").is_empty());
    }
}
