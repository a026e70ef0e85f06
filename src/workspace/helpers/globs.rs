//! Patterns of files that begin with a variable of the workspace.

use super::constants::{
    DIR_OUT, DIR_SKILLS, DIR_WORK, ENV_OUTPUT_DIR, ENV_SKILLS_DIR, ENV_WORK_DIR,
    WORKSPACE_ENV_DIR_KEY,
};

/// The variables, in the order in which they are replaced, and their directories.
const VARIABLES: [(&str, &str); 4] = [
    (WORKSPACE_ENV_DIR_KEY, "."),
    (ENV_SKILLS_DIR, DIR_SKILLS),
    (ENV_WORK_DIR, DIR_WORK),
    (ENV_OUTPUT_DIR, DIR_OUT),
];

/// Replaces a variable at the beginning of each pattern, such as `$OUTPUT_DIR` or `${WORK_DIR}`, with
/// its directory. Trims patterns and leaves out empty ones. Unknown variables stay.
pub fn normalize_globs(patterns: &[String]) -> Vec<String> {
    let trimmed = patterns.iter().map(|pattern| pattern.trim());
    trimmed.filter(|pattern| !pattern.is_empty()).map(normalized).collect()
}

fn normalized(pattern: &str) -> String {
    let mut pattern = pattern.to_owned();
    for (name, directory) in VARIABLES {
        let Some(tail) = behind_variable(&pattern, name) else { continue };
        pattern = match (directory, tail.strip_prefix(['/', '\\']).unwrap_or(tail)) {
            (directory, "") => directory.to_owned(),
            (".", tail) => tail.to_owned(),
            (directory, tail) => format!("{directory}/{tail}"),
        };
    }
    pattern
}

/// What follows the variable `name` at the beginning of `pattern`.
fn behind_variable<'a>(pattern: &'a str, name: &str) -> Option<&'a str> {
    let behind = pattern.strip_prefix('$')?;
    if let Some(braced) = behind.strip_prefix('{') {
        return braced.strip_prefix(name)?.strip_prefix('}');
    }
    // `$OUTPUT_DIRECTORY` is another variable.
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    behind.strip_prefix(name).filter(|tail| !tail.starts_with(is_of_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_the_workspace_becomes_its_directory() {
        for (pattern, wanted) in [
            ("$OUTPUT_DIR/a.txt", Some("out/a.txt")),
            ("${WORK_DIR}/x/**", Some("work/x/**")),
            ("$SKILLS_DIR/tool", Some("skills/tool")),
            ("$WORKSPACE_DIR/out/b.txt", Some("out/b.txt")),
            ("$WORKSPACE_DIR/out", Some("out")),
            ("$WORKSPACE_DIR", Some(".")),
            ("${WORKSPACE_DIR}/", Some(".")),
            ("$OUTPUT_DIR", Some("out")),
            ("$OUTPUT_DIR/", Some("out")),
            ("$OUTPUT_DIR\\a", Some("out/a")),
            ("$OUTPUT_DIR//a", Some("out//a")),
            ("$OUTPUT_DIR*.txt", Some("out/*.txt")),
            ("$WORKSPACE_DIR/$OUTPUT_DIR/x", Some("out/x")),
            ("$OUTPUT_DIR/$WORK_DIR/x", Some("out/$WORK_DIR/x")),
            ("  out/c.txt\n", Some("out/c.txt")),
            ("", None),
            (" \t ", None),
            ("$UNKNOWN_DIR/d.txt", Some("$UNKNOWN_DIR/d.txt")),
            ("$OUTPUT_DIRECTORY/x", Some("$OUTPUT_DIRECTORY/x")),
            ("$OUTPUT_DIR_2/x", Some("$OUTPUT_DIR_2/x")),
            ("${OUTPUT_DIRECTORY}/x", Some("${OUTPUT_DIRECTORY}/x")),
            ("${OUTPUT_DIR/x", Some("${OUTPUT_DIR/x")),
            ("a/$OUTPUT_DIR/x", Some("a/$OUTPUT_DIR/x")),
            ("$RUN_DIR/x", Some("$RUN_DIR/x")),
        ] {
            let normalized = normalize_globs(&[pattern.to_owned()]);
            assert_eq!(normalized.first().map(String::as_str), wanted, "{pattern:?}");
        }
        let all = ["b", " ", "a", "b"].map(str::to_owned);
        assert_eq!(normalize_globs(&all), ["b", "a", "b"], "order and repetitions stay");
    }
}
