//! Web origins in `Origin` headers.

/// Whether `text` is an origin as browsers send it in `Origin`: `http` or `https`, a host in lower
/// case, and a port unless it is the scheme's default.
pub fn is_origin(text: &str) -> bool {
    let (authority, own_port) = match text.split_once("://") {
        Some(("http", authority)) => (authority, "80"),
        Some(("https", authority)) => (authority, "443"),
        _ => return false,
    };
    // The colons of an address in brackets are not the port's.
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    is_host(host) && port.is_none_or(|port| port != own_port && is_port(port))
}

fn is_host(text: &str) -> bool {
    let address = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    match address {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok_and(|ip| {
            // Browsers send an address only in this form.
            ip.to_string() == address
        }),
        None => {
            !text.is_empty()
                && text.bytes().all(|byte| is_letter(byte) || matches!(byte, b'.' | b'-' | b'_'))
        }
    }
}

fn is_port(text: &str) -> bool {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    digits && !text.starts_with('0') && text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_what_a_browser_would_send_and_nothing_else() {
        for text in [
            "http://localhost:4040",
            "https://battle.example",
            "https://xn--bcher-kva.example:8443",
            "http://127.0.0.1:3000",
            "http://[::1]:3000",
            "http://[::1]",
            "http://a_b.example",
            "https://a.example:80",
        ] {
            assert!(is_origin(text), "{text:?}");
        }
        for text in [
            "",
            "*",
            "null",
            "https://",
            "https://*",
            "https://*.example",
            "battle.example",
            "//battle.example",
            "HTTPS://battle.example",
            "https://Battle.example",
            "https://bücher.example",
            "https://battle.example/",
            "https://battle.example/path",
            "https://battle.example:443",
            "http://battle.example:80",
            "https://battle.example:",
            "https://battle.example:0",
            "https://battle.example:08443",
            "https://battle.example:65536",
            "https://battle.example:+1",
            "https://user@battle.example",
            "https://battle.example?x",
            "https://a b",
            "ftp://battle.example",
            "file://",
            "http://[::1",
            "http://[0:0:0:0:0:0:0:1]",
            "http://::1",
        ] {
            assert!(!is_origin(text), "{text:?}");
        }
    }
}
