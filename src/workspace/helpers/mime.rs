//! Media types.

/// Whether `mime_type` is a text format that can stand in a document as UTF-8. Parameters, spaces and
/// case do not matter.
pub fn is_text_mime(mime_type: &str) -> bool {
    let name = mime_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    name.starts_with("text/") || name == "application/json" || name.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json_are_text_and_nothing_else() {
        for (mime_type, is_text) in [
            ("text/plain", true),
            ("  text/plain  ", true),
            ("text/plain; charset=utf-8", true),
            ("text/html;charset=", true),
            ("Text/Plain", true),
            ("application/json", true),
            ("application/json ; charset=utf-8", true),
            ("application/ld+json", true),
            ("APPLICATION/LD+JSON", true),
            ("image/png", false),
            ("application/octet-stream", false),
            ("application/xml", false),
            ("application/javascript", false),
            ("application/yaml", false),
            ("application/x; a=text/plain", false),
            ("text", false),
            ("", false),
        ] {
            assert_eq!(is_text_mime(mime_type), is_text, "{mime_type:?}");
        }
    }
}
