//! Parsers for the values of options: sizes, counts, paths and variables.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use cofferdam_core::values::bytes::parse_bytes;
use cofferdam_core::values::duration::{BadDuration, parse_duration};
use cofferdam_core::{Bind, Tmpfs};

/// Why a value does not fit its option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadValue {
    /// Not a number of bytes above 0.
    #[error("want a byte count above 0, such as 1048576, 64KiB or 512MiB")]
    Bytes,
    /// Not a number of bytes.
    #[error("want a byte count such as 64KiB or 1MiB, or 0 for no limit")]
    OptionalBytes,
    /// Not a positive whole number.
    #[error("want a whole number from 1")]
    Count,
    /// Not `SRC:DST` or `SRC:DST:ro`.
    #[error("want SRC:DST or SRC:DST:ro")]
    Bind,
    /// Not a valid mount point in the sandbox.
    #[error("want an absolute path below the root of the sandbox, without ..")]
    Target,
    /// A path where the sandbox mounts its own file systems.
    #[error("want a path other than /dev, /proc and below /proc, which belong to the sandbox")]
    Own,
    /// Not an absolute path without `..`.
    #[error("want an absolute path in the sandbox, without ..")]
    Directory,
    /// Not `KEY=VALUE`.
    #[error("want KEY=VALUE")]
    Variable,
}

/// Parses a duration such as `500ms`, `1.5s` or `2m`.
pub fn duration(text: &str) -> Result<Duration, BadDuration> {
    parse_duration(text)
}

/// Parses a number of bytes above 0.
pub fn bytes(text: &str) -> Result<u64, BadValue> {
    parse_bytes(text).ok().filter(|bytes| *bytes > 0).ok_or(BadValue::Bytes)
}

/// Parses a number of bytes; 0 means no limit.
pub fn bytes_or_unlimited(text: &str) -> Result<u64, BadValue> {
    parse_bytes(text).map_err(|_| BadValue::OptionalBytes)
}

/// Parses a whole number from 1.
pub fn count(text: &str) -> Result<u64, BadValue> {
    decimal(text).filter(|count| *count > 0).ok_or(BadValue::Count)
}

/// Parses `SRC:DST` or `SRC:DST:ro`; `SRC` may be relative.
pub fn bind(text: &str) -> Result<Bind, BadValue> {
    let (source, target) = text.split_once(':').ok_or(BadValue::Bind)?;
    let (target, read_only) = match target.split_once(':') {
        Some((target, "ro")) => (target, true),
        Some(_) => return Err(BadValue::Bind),
        None => (target, false),
    };
    if source.is_empty() {
        return Err(BadValue::Bind);
    }
    Ok(Bind { source: source.into(), target: self::target(target)?, read_only })
}

/// Parses `DST` or `DST:SIZE`.
pub fn tmpfs(text: &str) -> Result<Tmpfs, BadValue> {
    let (target, size) = match text.split_once(':') {
        Some((target, size)) => (target, Some(size)),
        None => (text, None),
    };
    Ok(Tmpfs { target: self::target(target)?, bytes_max: size.map(bytes).transpose()? })
}

/// Parses a mount point in the sandbox: absolute and below the root.
fn target(text: &str) -> Result<PathBuf, BadValue> {
    let path = inside(text).filter(|path| path != Path::new("/")).ok_or(BadValue::Target)?;
    if path == Path::new("/dev") || path.starts_with("/proc") {
        return Err(BadValue::Own);
    }
    Ok(path)
}

/// Parses an absolute directory in the sandbox.
pub fn directory(text: &str) -> Result<PathBuf, BadValue> {
    inside(text).ok_or(BadValue::Directory)
}

/// An absolute path without `..`, normalized: no doubled or trailing slashes.
fn inside(text: &str) -> Option<PathBuf> {
    let path = Path::new(text);
    let stays = path.components().all(|part| part != Component::ParentDir);
    (path.is_absolute() && stays).then(|| path.components().collect())
}

/// Parses `KEY=VALUE`; the key must not be empty.
pub fn variable(text: &str) -> Result<(String, String), BadValue> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(BadValue::Variable),
    }
}

/// Parses decimal digits only: no sign, no space.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positive_and_unsigned() {
        assert_eq!((bytes("1.5MiB"), count("256")), (Ok(1_572_864), Ok(256)));
        assert_eq!((bytes_or_unlimited("0"), bytes_or_unlimited("64K")), (Ok(0), Ok(65_536)));
        for text in ["", "0", "-1", "+1", " 1", "1.5", "many", "99999999999999999999"] {
            assert_eq!(count(text), Err(BadValue::Count), "{text:?}");
            assert_eq!(bytes(text), Err(BadValue::Bytes), "{text:?}");
        }
    }

    #[test]
    fn a_bind_has_a_source_and_an_absolute_target_below_the_root() {
        let data = |read_only| Bind { source: "data".into(), target: "/data".into(), read_only };
        assert_eq!(bind("data:/data"), Ok(data(false)));
        assert_eq!(bind("data://data/:ro"), Ok(data(true)));
        for text in ["", "data", ":/data", "data:/data:rw", "data:/data:ro:ro"] {
            assert_eq!(bind(text), Err(BadValue::Bind), "{text:?}");
        }
        for text in ["data:", "data:inner", "data:/", "data://", "data:/a/../b", "data:/./:ro"] {
            assert_eq!(bind(text), Err(BadValue::Target), "{text:?}");
        }
    }

    #[test]
    fn a_tmpfs_may_have_a_size() {
        let scratch = |bytes_max| Tmpfs { target: "/scratch".into(), bytes_max };
        assert_eq!(tmpfs("/scratch"), Ok(scratch(None)));
        assert_eq!(tmpfs("/scratch:1MiB"), Ok(scratch(Some(1 << 20))));
        assert_eq!(tmpfs("scratch"), Err(BadValue::Target));
        assert_eq!(tmpfs("/scratch:big"), Err(BadValue::Bytes));
    }

    #[test]
    fn paths_that_the_sandbox_mounts_are_refused_as_targets() {
        for target in ["/dev", "/dev/", "/proc", "/proc/cpuinfo"] {
            assert_eq!(bind(&format!("data:{target}")), Err(BadValue::Own), "{target}");
            assert_eq!(tmpfs(target), Err(BadValue::Own), "{target}");
        }
        for target in ["/dev/shm", "/processes"] {
            assert!(tmpfs(target).is_ok(), "{target}");
        }
    }

    #[test]
    fn a_directory_in_the_sandbox_is_absolute() {
        assert_eq!((directory("/"), directory("/a//b/")), (Ok("/".into()), Ok("/a/b".into())));
        for text in ["", "a", "./a", "/a/../b"] {
            assert_eq!(directory(text), Err(BadValue::Directory), "{text:?}");
        }
    }

    #[test]
    fn a_variable_has_a_name_and_may_be_empty() {
        assert_eq!(variable("A=b=c"), Ok(("A".to_owned(), "b=c".to_owned())));
        assert_eq!(variable("A="), Ok(("A".to_owned(), String::new())));
        for text in ["", "A", "=b"] {
            assert_eq!(variable(text), Err(BadValue::Variable), "{text:?}");
        }
    }
}
