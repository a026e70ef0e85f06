//! Places of the host as URIs.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The `file://` of an absolute path; what is not plain in a URI is percent-encoded.
pub(super) fn file_uri(path: &Path) -> String {
    let mut uri = "file://".to_owned();
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            // A String takes whatever is written into it.
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn what_is_not_plain_is_encoded() {
        for (path, uri) in [
            (&b"/a/b-c._~9"[..], "file:///a/b-c._~9"),
            (b"/a b/\xC3\xA9%?#\n", "file:///a%20b/%C3%A9%25%3F%23%0A"),
            (b"/\xFF", "file:///%FF"),
        ] {
            assert_eq!(file_uri(Path::new(OsStr::from_bytes(path))), uri);
        }
    }
}
