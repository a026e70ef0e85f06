//! Names of environment variables, and of commits, branches and tags.

/// The longest name of a commit, bytes.
const REFERENCE_BYTES_MAX: usize = 2048;

/// Whether `text` is a variable name that a shell can set: letters, digits and underscores, not
/// starting with a digit.
pub fn is_variable_name(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_well = text.starts_with(|first: char| !first.is_ascii_digit());
    starts_well && text.bytes().all(word)
}

/// Whether git takes `text` for a commit, a branch or a tag, and for no option or expression.
pub fn is_git_reference(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && !c.is_control() && !"~^:?*[\\".contains(c);
    (1..=REFERENCE_BYTES_MAX).contains(&text.len())
        && !text.starts_with('-')
        && !text.contains("..")
        && !text.contains("@{")
        && text.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_that_does_not_start_with_a_digit() {
        for (text, is_name) in
            [("A", true), ("_a1", true), ("", false), ("1A", false), ("A-B", false), ("é", false)]
        {
            assert_eq!(is_variable_name(text), is_name, "{text:?}");
        }
    }
    #[test]
    fn a_reference_is_no_option_and_no_expression() {
        for (text, is_name) in [
            ("main", true),
            ("v1.2.3", true),
            ("feature/a-b", true),
            ("0b6e3b1", true),
            ("", false),
            ("-f", false),
            ("a..b", false),
            ("HEAD@{1}", false),
            ("HEAD^", false),
            ("a b", false),
            ("a:b", false),
            ("a\n", false),
        ] {
            assert_eq!(is_git_reference(text), is_name, "{text:?}");
        }
    }
}
