//! Names of environment variables.

/// Whether `text` is a variable name that a shell can set: letters, digits and underscores, not
/// starting with a digit.
pub fn is_variable_name(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_well = text.starts_with(|first: char| !first.is_ascii_digit());
    starts_well && text.bytes().all(word)
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
}
