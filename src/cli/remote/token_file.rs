//! Files with a token.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::cli::failure::{Failure, error_words};
use crate::cli::stdio::say;

/// The longest token, bytes.
const TOKEN_BYTES_MAX: u64 = 4096;
/// The permission bits of all other users.
const OTHERS: u32 = 0o077;

/// Reads the token in `path`; warns if other users can read the file.
pub fn read_token(path: &Path) -> Result<String, Failure> {
    let fault =
        |words: &str| Failure::option("--token-file", format!("{}: {words}", path.display()));
    let open = || {
        let file = File::open(path)?;
        Ok((file.metadata()?.permissions().mode(), file))
    };
    let (mode, file) = open().map_err(|error: std::io::Error| fault(&error_words(&error)))?;
    if mode & OTHERS != 0 {
        let path = path.display();
        say(&format!("cofferdam: --token-file: {path}: others can read it; chmod 600 {path}"));
    }
    let mut line = String::new();
    BufReader::new(file.take(TOKEN_BYTES_MAX))
        .read_line(&mut line)
        .map_err(|error| fault(&error_words(&error)))?;
    let token = line.trim();
    if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(fault(
            "no token in its first line; want printable ASCII characters without spaces",
        ));
    }
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use tempfile::tempdir;

    use super::*;

    #[test]
    fn a_token_is_the_first_line_of_its_file_and_never_shown() {
        let directory = tempdir().unwrap();
        let path = directory.path().join("token");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        for (text, token) in [("secret\n", Some("secret")), ("  a.b-c \nrest", Some("a.b-c"))] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(read_token(&path).ok().as_deref(), token, "{text:?}");
        }
        for text in ["", "\nsecret", "two words", "é", "secret\0", &"x".repeat(9000)] {
            std::fs::write(&path, text).unwrap();
            let token = read_token(&path).map(|token| token.len());
            match token {
                Ok(length) => assert!(length <= 4096, "{length}"),
                Err(fault) => assert!(!fault.to_string().contains("secret"), "{fault}"),
            }
        }
    }
}
