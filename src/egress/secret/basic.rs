//! Credentials of `Basic`: a user and a password in base64.

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use zeroize::Zeroizing;

const SCHEME: &str = "basic";
/// Takes what lenient servers take.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &ALPHABET,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The user and password of a header's `value`, if it is such credentials.
pub fn decode(value: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let text = std::str::from_utf8(value).ok()?.trim_start();
    let (scheme, encoded) = text.split_once([' ', '\t'])?;
    if !scheme.eq_ignore_ascii_case(SCHEME) {
        return None;
    }
    LENIENT.decode(encoded.trim()).ok().map(Zeroizing::new)
}

/// The header's value for a user and password.
pub fn encode(pair: &[u8]) -> Zeroizing<Vec<u8>> {
    let prefix = b"Basic ";
    let encoded = Zeroizing::new(STANDARD.encode(pair));
    let mut value = Zeroizing::new(Vec::with_capacity(prefix.len() + encoded.len()));
    value.extend_from_slice(prefix);
    value.extend_from_slice(encoded.as_bytes());
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_read_as_lenient_servers_read_them() {
        for value in ["Basic dXNlcjpwYXNz", "basic  dXNlcjpwYXNz ", "BASIC\tdXNlcjpwYXNz"] {
            assert_eq!(&**decode(value.as_bytes()).unwrap(), b"user:pass", "{value:?}");
        }
        assert_eq!(&**decode(b"Basic YQ").unwrap(), b"a");
        assert_eq!(&**decode(b"Basic YR==").unwrap(), b"a");
        for value in ["", "Basic", "Bearer dXNlcjpwYXNz", "Basic dXN!", "Basic \u{e9}"] {
            assert!(decode(value.as_bytes()).is_none(), "{value:?}");
        }
        assert_eq!(&**encode(b"user:pass"), b"Basic dXNlcjpwYXNz");
    }
}
