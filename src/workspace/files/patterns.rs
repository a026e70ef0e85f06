//! The patterns of a request, as they are matched.

use std::path::Path;

use super::error::engine_error;
use crate::workspace::error::EngineError;
use crate::workspace::helpers::normalize_globs;
use cofferdam_core::values::glob::PATTERNS_MAX;
use cofferdam_tree::files::{FilesError, check_patterns};

/// The patterns `asked`, the value of the field `field`, relative to the workspace that programs see at `top`. Blank ones
/// are left out. Without `top`, absolute ones are left out too, unjudged.
///
/// # Errors
/// The first one that is malformed or leaves the workspace.
pub fn relative_patterns(
    field: &str,
    asked: &[String],
    top: Option<&Path>,
) -> Result<Vec<String>, EngineError> {
    let mut patterns = Vec::with_capacity(asked.len());
    for (index, asked) in asked.iter().enumerate() {
        let Some(pattern) = normalize_globs(std::slice::from_ref(asked)).pop() else { continue };
        if top.is_none() && pattern.starts_with('/') {
            continue;
        }
        if patterns.len() >= PATTERNS_MAX {
            return Err(EngineError::invalid(field, format!("more than {PATTERNS_MAX} of them")));
        }
        let pattern = [below(pattern, top)];
        check_patterns(&pattern).map_err(|error| refused(&format!("{field}[{index}]"), error))?;
        patterns.extend(pattern);
    }
    Ok(patterns)
}

/// A pattern below `top` without it.
fn below(pattern: String, top: Option<&Path>) -> String {
    let rest = top.and_then(|top| pattern.strip_prefix(top.to_str()?));
    match rest {
        Some("") => ".".to_owned(),
        Some(rest) if rest.starts_with('/') => format!(".{rest}"),
        _ => pattern,
    }
}

fn refused(path: &str, error: FilesError) -> EngineError {
    match error {
        FilesError::BadPattern { reason, .. } => EngineError::invalid(path, reason),
        error => {
            let error = engine_error(error);
            let words = format!("{path}: {}", error.message);
            EngineError::new(error.code, words).with("path", path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::error::EngineCode;

    fn relative(asked: &[&str], top: Option<&str>) -> Result<Vec<String>, EngineError> {
        let asked: Vec<String> = asked.iter().map(|&text| text.into()).collect();
        relative_patterns("patterns", &asked, top.map(Path::new))
    }

    #[test]
    fn a_pattern_below_the_workspace_is_relative_to_it() {
        let asked = ["out/*", " ", "/srv/w/out/*", "/srv/w", "/srv/w//a", "$OUTPUT_DIR/x"];
        let expected = ["out/*", "./out/*", ".", ".//a", "out/x"].map(str::to_owned);
        assert_eq!(relative(&asked, Some("/srv/w")), Ok(expected.into()));
        assert_eq!(relative(&["/srv/w/a", "b"], None), Ok(vec!["b".to_owned()]));
    }

    #[test]
    fn a_wrong_pattern_is_named_by_its_place() {
        for (pattern, code) in [
            ("/srv/wx", EngineCode::PathEscape),
            ("/tmp/*", EngineCode::PathEscape),
            ("/srv/w/../x", EngineCode::PathEscape),
            ("../x", EngineCode::PathEscape),
            ("[", EngineCode::InvalidRequest),
        ] {
            let error = relative(&["", "a", pattern], Some("/srv/w")).unwrap_err();
            assert_eq!((error.code, &error.details["path"]), (code, &"patterns[2]".into()));
        }
        let many = vec!["a"; PATTERNS_MAX + 1];
        assert_eq!(relative(&many, None).unwrap_err().details["path"], "patterns");
    }
}
