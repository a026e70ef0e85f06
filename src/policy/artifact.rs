//! The rule on artifacts: a pattern must not leave the workspace or name a secret. Patterns that
//! merely match secrets are accepted: each file is checked when artifacts are collected.

mod pattern;

use cofferdam_core::job::{ErrorCode, ExcludedGroup, JobError, excluded_group};
use pattern::{EXPANDED_MAX, PatternPart, PatternToken, alternatives};

/// Names of secrets, each with the number of letters and digits that identify it.
const SECRETS: &[(&str, usize)] = &[
    (".env", 3),
    (".env.local", 3),
    ("a.pem", 3),
    ("a.key", 3),
    ("a.p12", 3),
    ("a.pfx", 3),
    ("id_rsa", 5),
    ("id_ed25519", 9),
    ("id_ecdsa", 7),
    ("id_dsa", 5),
    (".ssh", 3),
    (".aws", 3),
    (".gnupg", 5),
    (".netrc", 5),
    (".npmrc", 5),
    (".pypirc", 6),
    ("credentials.json", 11),
    ("secrets", 7),
    (".secrets", 7),
];

/// Refuses the first pattern that is absolute, has a component `..` or names a secret, and all
/// patterns beyond [`EXPANDED_MAX`].
pub(super) fn check(patterns: &[String]) -> Result<(), JobError> {
    let mut budget = EXPANDED_MAX;
    for pattern in patterns {
        let refusal = match alternatives(pattern, &mut budget) {
            None => Some("the patterns have too many alternatives"),
            Some(all) => refusal(&all),
        };
        if let Some(message) = refusal {
            let error = JobError::new(ErrorCode::ArtifactDenied, message);
            return Err(error.with("pattern", pattern.as_str()));
        }
    }
    Ok(())
}

fn refusal(alternatives: &[Vec<PatternPart>]) -> Option<&'static str> {
    if alternatives.iter().any(|path| leaves_workspace(path)) {
        return Some("the pattern leaves the workspace");
    }
    let is_secret = alternatives.iter().any(|path| is_secret(path));
    is_secret.then_some("the pattern names a secret")
}

fn leaves_workspace(path: &[PatternPart]) -> bool {
    let is_absolute = path.len() > 1 && path.first().is_some_and(|part| part.tokens.is_empty());
    is_absolute || path.iter().any(|part| part.literal().is_some_and(|text| text == ".."))
}

/// Whether a component is the name of a secret, or gives more than half of such a name and matches
/// it. `*` and `*.json` do not.
fn is_secret(path: &[PatternPart]) -> bool {
    path.iter().any(|part| {
        let as_written = part.text(|_| "*");
        let without_stars =
            part.text(|token| if matches!(token, PatternToken::Star) { "" } else { "?" });
        is_secret_name(&as_written)
            || is_secret_name(&without_stars)
            || SECRETS
                .iter()
                .any(|(name, weight)| part.letters_and_digits() * 2 > *weight && part.matches(name))
    })
}

fn is_secret_name(name: &str) -> bool {
    let group = |is_directory| excluded_group(b"", name.as_bytes(), is_directory);
    [true, false].into_iter().any(|kind| group(kind) == Some(ExcludedGroup::Secrets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_in_the_table_is_excluded_from_workspaces() {
        for (name, weight) in SECRETS {
            assert!(is_secret_name(name), "{name}");
            let letters = name.chars().filter(char::is_ascii_alphanumeric).count();
            assert!(*weight <= letters, "{name}");
        }
    }

    #[test]
    fn a_pattern_that_names_a_secret_is_refused_and_one_that_only_matches_some_is_not() {
        for pattern in [
            ".env",
            "**/.env",
            ".env*",
            ".env.*",
            "a/.env.local",
            ".ENV",
            "**/*.pem",
            "*.key",
            "a*.pem",
            "secrets/**",
            "Secrets/a",
            "**/secrets/*",
            ".secrets/x",
            ".ssh/id_rsa",
            "**/id_rsa*",
            "id_rsa?",
            "id_ed25519",
            "{a,.env}",
            "out/{a,b/.env}",
            "{a,{b,.env}}",
            "x{,.key}",
            ".e[n]v",
            ".[e]nv",
            ".e\\nv",
            ".en?",
            "*.pe?",
            ".s?h/**",
            ".ss[h]/x",
            "credentials*",
            "cred*.json",
            "credentials-prod.json",
            ".aws/**",
            "**/.netrc",
            ".npmrc",
            "*.p12",
            "secret[s]/x",
            ".{e,f}nv",
            "{.,x}env",
            "*.env",
            ".en*",
            "[.]env",
            "[.]ssh[/]x",
        ] {
            let error = check(&["out/*".to_owned(), pattern.to_owned()]).unwrap_err();
            assert_eq!(error.code, ErrorCode::ArtifactDenied, "{pattern}");
            assert_eq!(error.message, "the pattern names a secret", "{pattern}");
            assert_eq!(error.details["pattern"], pattern);
        }
        for pattern in [
            "**",
            "*",
            "**/*",
            "out/*",
            "out/**",
            "*.json",
            "**/*.log",
            "*.*",
            ".*",
            "**/*.txt",
            "env/**",
            "environment.json",
            "report.{json,html}",
            "keys.txt",
            "pem/a",
            "key",
            "c*.json",
            "?",
            "????",
            "secretary.txt",
            "my_secrets.md",
            "[a-z]*",
            "target/**",
            "{a,b}/{c,d}",
            "a.keys",
            ".github/**",
            "tokens/*",
            "[!a]*",
            "*s*",
            "a,b",
            "a}b",
        ] {
            assert_eq!(check(&[pattern.to_owned()]), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn a_pattern_that_leaves_the_workspace_is_refused() {
        for pattern in [
            "/etc/passwd",
            "/",
            "/**",
            "..",
            "../x",
            "a/../b",
            "a/..",
            "**/../x",
            "{a,..}/x",
            "{/etc,a}/passwd",
            "[.][.]/x",
            ".{.,x}/y",
            "\\../x",
            "\\/etc",
            "[/]etc",
            "{,a}/x",
        ] {
            let error = check(&[pattern.to_owned()]).unwrap_err();
            assert!(error.message.contains("leaves the workspace"), "{pattern}: {error}");
        }
        for pattern in ["...", "a..b", "..a/x", "./x", "a//b", "a/", "{a,b}"] {
            assert_eq!(check(&[pattern.to_owned()]), Ok(()), "{pattern}");
        }
    }

    #[test]
    fn hostile_patterns_are_checked_quickly() {
        let group = "{a,b,c,d,e,f,g,h}{1,2,3,4,5,6,7,8}{x,y,z}";
        for part in ["ab/", "*?*", "a*b*c*/", "{"] {
            let pattern = part.repeat(900 / part.len()) + group;
            let started = std::time::Instant::now();
            _ = check(&vec![pattern; 1000]);
            let took = started.elapsed();
            assert!(took.as_secs() < 60, "{part} took {took:?}");
        }
    }

    #[test]
    fn alternatives_are_bounded_for_one_pattern_and_for_all_together() {
        let many = "{a,b}".repeat(100);
        let error = check(std::slice::from_ref(&many)).unwrap_err();
        assert_eq!(error.details["pattern"], many.as_str());
        let some = format!("{{a,b,c,d}}{{1,2,3,4}}{}", "x".repeat(700));
        assert_eq!(check(&vec![some.clone(); 15]), Ok(()));
        assert!(check(&vec![some; 20]).is_err());
    }
}
