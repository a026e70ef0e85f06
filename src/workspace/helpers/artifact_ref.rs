//! Names of artifacts with a version.

use crate::workspace::error::EngineError;

/// The largest version; JSON readers and the seed have signed integers of 64 bits.
pub const VERSION_MAX: u64 = i64::MAX.unsigned_abs();

/// Splits `name@version` into its parts. What follows the last `@` is a version if it consists of
/// digits; otherwise the whole text is the name.
///
/// # Errors
/// The name is empty, or the version is larger than [`VERSION_MAX`].
pub fn parse_artifact_ref(reference: &str) -> Result<(String, Option<u64>), EngineError> {
    let invalid = |fault: &str| EngineError::invalid("ref", fault);
    let (name, version) = match reference.rsplit_once('@') {
        Some((name, digits)) if is_number(digits) => {
            let version = digits.parse().ok().filter(|version| *version <= VERSION_MAX);
            let words = || invalid("the version is too large");
            (name, Some(version.ok_or_else(words)?))
        }
        _ => (reference, None),
    };
    match name {
        "" => Err(invalid("want a name before the version")),
        name => Ok((name.to_owned(), version)),
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_digits_behind_the_last_at_sign_are_a_version() {
        for (reference, name, version) in [
            ("a", "a", None),
            ("a@0", "a", Some(0)),
            ("a@7", "a", Some(7)),
            ("dir/a.txt@12", "dir/a.txt", Some(12)),
            ("tail@", "tail@", None),
            ("bad@v1", "bad@v1", None),
            ("a@b@c", "a@b@c", None),
            ("a@b@123", "a@b", Some(123)),
            ("a@-1", "a@-1", None),
            ("a@+1", "a@+1", None),
            ("a@١", "a@١", None),
            ("a@007", "a", Some(7)),
            ("@", "@", None),
            ("@v", "@v", None),
            ("a@9223372036854775807", "a", Some(VERSION_MAX)),
        ] {
            let parsed = parse_artifact_ref(reference).unwrap();
            assert_eq!(parsed, (name.to_owned(), version), "{reference}");
        }
        for reference in ["", "@123", "a@9223372036854775808", "a@999999999999999999999999999999"] {
            let error = parse_artifact_ref(reference).unwrap_err();
            assert_eq!(error.details["path"], "ref", "{reference}");
        }
    }
}
