//! Names of environment variables.

/// Whether `text` is a name that a shell could set: letters, digits and
/// underscores, no digit first.
pub fn is_variable_name(text: &str) -> bool {
    let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let starts_well = text.starts_with(|first: char| !first.is_ascii_digit());
    starts_well && text.bytes().all(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_word_that_begins_with_no_digit() {
        for (text, is_name) in
            [("A", true), ("_a1", true), ("", false), ("1A", false), ("A-B", false), ("é", false)]
        {
            assert_eq!(is_variable_name(text), is_name, "{text:?}");
        }
    }
}
