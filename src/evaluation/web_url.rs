//! URLs of http and https (pure).

/// The longest URL, in bytes.
pub const URL_BYTES_MAX: usize = 2048;

/// A URL of http or https without user info.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebUrl {
    text: String,
    host: String,
    port: u16,
    is_tls: bool,
}

impl WebUrl {
    /// Parses it.
    ///
    /// # Errors
    /// What is wrong with it, as a clause.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let wanted = "want a URL of http or https";
        if text.len() > URL_BYTES_MAX {
            return Err("a URL has at most 2048 bytes");
        }
        let (scheme, rest) = text.split_once("://").ok_or(wanted)?;
        let is_tls = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(wanted),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"\"<>\\^`{|}".contains(&byte);
        if !rest.bytes().all(is_plain) {
            return Err("the URL has a character that is not allowed in one");
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("a URL may not have user info");
        }
        if rest.contains('#') {
            return Err("the URL may not have a fragment");
        }
        let (host, port) = split_port(authority).ok_or(wanted)?;
        let default_port = if is_tls { 443 } else { 80 };
        let port = if port.is_empty() { Some(default_port) } else { port.parse().ok() };
        let port = port.filter(|port| *port > 0).ok_or("the URL has no valid port")?;
        if host.is_empty() || host.starts_with('-') {
            return Err(wanted);
        }
        let host = host.trim_end_matches('.').to_ascii_lowercase();
        Ok(Self { text: text.to_owned(), host, port, is_tls })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host in lower case, with the brackets of an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where a redirect to `location` leads.
    ///
    /// # Errors
    /// What is wrong with it, as a clause.
    pub fn join(&self, location: &str) -> Result<Self, &'static str> {
        let location = location.split('#').next().unwrap_or_default();
        let scheme = if self.is_tls { "https" } else { "http" };
        let has_scheme = location.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        if has_scheme {
            return Self::parse(location);
        }
        if let Some(rest) = location.strip_prefix("//") {
            return Self::parse(&format!("{scheme}://{rest}"));
        }
        let (host, port) = (&self.host, self.port);
        if location.starts_with('/') {
            return Self::parse(&format!("{scheme}://{host}:{port}{location}"));
        }
        let behind = self.text.split_once("://").map_or("", |(_, rest)| rest);
        let path = behind.find('/').and_then(|at| behind.get(at..)).unwrap_or("/");
        let path = path.split('?').next().unwrap_or_default();
        let directory = path.rfind('/').and_then(|at| path.get(..=at)).unwrap_or("/");
        Self::parse(&format!("{scheme}://{host}:{port}{directory}{location}"))
    }
}

/// The host and the port, which may be empty.
fn split_port(authority: &str) -> Option<(&str, &str)> {
    if authority.starts_with('[') {
        let end = authority.find(']')? + 1;
        let (host, behind) = authority.split_at(end);
        return match behind.strip_prefix(':') {
            Some(port) => Some((host, port)),
            None => behind.is_empty().then_some((host, "")),
        };
    }
    Some(authority.split_once(':').unwrap_or((authority, "")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_of_http_or_https_and_has_no_user_info() {
        for (text, expected) in [
            ("https://github.com/a/b", Some(("github.com", 443))),
            ("HTTP://Example.ORG./a.git", Some(("example.org", 80))),
            ("http://127.0.0.1:8080/a", Some(("127.0.0.1", 8080))),
            ("http://[::1]:81/a", Some(("[::1]", 81))),
            ("https://[::1]", Some(("[::1]", 443))),
            ("https://h:/a", Some(("h", 443))),
            ("https://h/a@b", Some(("h", 443))),
            ("https://user@h/a", None),
            ("https://user:pw@h/a", None),
            ("https://h:0/a", None),
            ("https://h:65536/a", None),
            ("https://h:x/a", None),
            ("https://h/a b", None),
            ("https://h/a\nb", None),
            ("https://h/a#b", None),
            ("https://[::1", None),
            ("https://[::1]x/a", None),
            ("https:///a", None),
            ("https://-h/a", None),
            ("https://", None),
            ("ftp://h/a", None),
            ("file:///etc", None),
            ("ssh://git@h/a", None),
            ("", None),
        ] {
            let parsed = WebUrl::parse(text).ok();
            let found = parsed.as_ref().map(|url| (url.host(), url.port()));
            assert_eq!(found, expected, "{text}");
        }
        let long = |bytes: usize| format!("http://h/{}", "a".repeat(bytes - 9));
        assert!(WebUrl::parse(&long(2048)).is_ok() && WebUrl::parse(&long(2049)).is_err());
    }

    #[test]
    fn a_redirect_is_absolute_or_relative_and_never_leaves_http() {
        let from = WebUrl::parse("https://h/a/b?c=/d").unwrap();
        for (location, expected) in [
            ("http://o/x#y", Some("http://o/x")),
            ("//o:1/x", Some("https://o:1/x")),
            ("/x", Some("https://h:443/x")),
            ("x/y", Some("https://h:443/a/x/y")),
            ("?q", Some("https://h:443/a/?q")),
            ("file:///etc/passwd", None),
            ("data:x", None),
            ("http://u@o/x", None),
            ("//", None),
        ] {
            let joined = from.join(location).ok();
            assert_eq!(joined.as_ref().map(WebUrl::as_str), expected, "{location}");
        }
    }
}
