//! The HTTP client of a job service; every response is limited in bytes and time.

use std::io::Read;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::uri::Authority;
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body, RequestBuilder};

use super::failure::JobFailure;
use crate::cli::failure::error_words;
use cofferdam_core::job::JobError;

/// The longest response that is read as JSON (a result or a list), bytes.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The longest error response, bytes.
const ERROR_BYTES_MAX: u64 = 1 << 20;
/// The time limit of connecting.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// The time limit of one request and its response.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How long a stream may be silent; the server's pings are more frequent.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// The time limit of downloading a file.
const DOWNLOAD_MAX: Duration = Duration::from_secs(3600);

/// The URL of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Parses `http://HOST[:PORT][/PREFIX]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        const WANT: &str = "want http://HOST:PORT";
        if text.starts_with("https:") {
            return Err("https is not supported; use http:// to a tunnel or proxy on this host \
                 that supports it"
                .to_owned());
        }
        let uri: Uri = text.parse().map_err(|_| WANT.to_owned())?;
        let host = uri.authority().map(Authority::as_str);
        let is_plain = host.is_some_and(|host| !host.is_empty() && !host.contains('@'));
        if uri.scheme_str() != Some("http") || !is_plain || uri.query().is_some() {
            return Err(WANT.to_owned());
        }
        Ok(Self(text.trim_end_matches('/').to_owned()))
    }
}

/// The client of one service.
#[derive(Debug, Clone)]
pub struct ServerClient {
    agent: Agent,
    server: ServerUrl,
    /// The value of the header `Authorization`.
    authorization: Option<String>,
}

impl ServerClient {
    /// A client that sends `token`, if any.
    pub fn new(server: &ServerUrl, token: Option<&str>) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // A redirect could send the token to another server.
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("cofferdam/", env!("CARGO_PKG_VERSION")))
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_global(Some(CALL_MAX))
            .build()
            .new_agent();
        let authorization = token.map(|token| format!("Bearer {token}"));
        Self { agent, server: server.clone(), authorization }
    }

    /// GET `path`, which begins with a slash.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, JobFailure> {
        let request = self.agent.get(self.url(path));
        self.read(self.authorized(request).call())
    }

    /// POST with an empty body.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, JobFailure> {
        let request = self.agent.post(self.url(path));
        self.read(self.authorized(request).send_empty())
    }

    /// POST of JSON. The server accepts it once, however often it is sent with the same `key`.
    pub fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &[u8],
        key: &str,
    ) -> Result<T, JobFailure> {
        let request = self.agent.post(self.url(path));
        let request = request.header("Idempotency-Key", key).content_type("application/json");
        self.read(self.authorized(request).send(body))
    }

    /// GET of a file.
    pub fn download(&self, path: &str) -> Result<Box<dyn Read + Send>, JobFailure> {
        let request = self.agent.get(self.url(path)).config();
        let request =
            request.timeout_global(Some(DOWNLOAD_MAX)).timeout_per_read(Some(SILENCE_MAX));
        self.open(self.authorized(request.build()).call())
    }

    /// GET of a stream of the events after `last_id`; unlimited in time while it is not silent.
    pub fn listen(
        &self,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<Box<dyn Read + Send>, JobFailure> {
        let request = self.agent.get(self.url(path)).header("Accept", "text/event-stream");
        let request = match last_id {
            Some(id) => request.header("Last-Event-ID", id),
            None => request,
        };
        let request = request.config().timeout_global(None);
        let request = request
            .timeout_send_request(Some(CALL_MAX))
            .timeout_recv_response(Some(CALL_MAX))
            .timeout_per_read(Some(SILENCE_MAX));
        self.open(self.authorized(request.build()).call())
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.server.0)
    }

    fn authorized<B>(&self, request: RequestBuilder<B>) -> RequestBuilder<B> {
        match &self.authorization {
            Some(authorization) => request.header("Authorization", authorization),
            None => request,
        }
    }

    fn read<T: DeserializeOwned>(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<T, JobFailure> {
        let mut answer = self.accepted(answer)?;
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| self.unreachable(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.unexpected(&error.to_string()))
    }

    fn open(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Box<dyn Read + Send>, JobFailure> {
        let body = self.accepted(answer)?.into_body().into_with_config();
        Ok(Box::new(body.limit(u64::MAX).reader()))
    }

    /// A successful response; otherwise the error that the server sent.
    fn accepted(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, JobFailure> {
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.body_mut().with_config().limit(ERROR_BYTES_MAX).read_to_vec();
        let error = body.ok().and_then(|body| serde_json::from_slice::<JobError>(&body).ok());
        match error {
            Some(error) => Err(error.into()),
            None => Err(self.unexpected(&status_words(status))),
        }
    }

    fn unreachable(&self, error: &ureq::Error) -> JobFailure {
        let words = match error {
            ureq::Error::Io(error) => error_words(error),
            error => error.to_string().to_lowercase(),
        };
        JobFailure::Server(format!("--server: {}: {words}; is the service running?", self.server.0))
    }

    fn unexpected(&self, words: &str) -> JobFailure {
        let server = &self.server.0;
        JobFailure::Server(format!(
            "--server: {server}: {words}; want a cofferdam service with jobs"
        ))
    }
}

fn status_words(status: StatusCode) -> String {
    format!("answered {}", status.as_u16())
}

/// Percent-encodes `text` for a path or a query, except for the bytes in `kept`.
pub fn escaped(text: &str, kept: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || kept.contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_url_is_plain_http_and_https_gets_advice() {
        for (text, url) in [
            ("http://127.0.0.1:4040", "http://127.0.0.1:4040"),
            ("http://[::1]:4040/", "http://[::1]:4040"),
            ("http://host/prefix/", "http://host/prefix"),
        ] {
            assert_eq!(ServerUrl::parse(text), Ok(ServerUrl(url.to_owned())), "{text}");
        }
        for (text, words) in [
            ("https://host", "tunnel or proxy"),
            ("host:4040", "want http://"),
            ("http://", "want http://"),
            ("http://user:secret@host", "want http://"),
            ("http://host/?a=b", "want http://"),
            ("ftp://host", "want http://"),
            ("", "want http://"),
        ] {
            let fault = ServerUrl::parse(text).unwrap_err();
            assert!(fault.contains(words), "{text}: {fault}");
        }
    }

    #[test]
    fn every_special_character_of_a_name_is_escaped() {
        assert_eq!(escaped("out/a b?#%é", b"/"), "out/a%20b%3F%23%25%C3%A9");
        assert_eq!(escaped("a/b", b""), "a%2Fb");
    }
}
