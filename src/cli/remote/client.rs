//! The HTTP client of a service; every response is limited in bytes and time.

use std::fmt;
use std::io::Read;
use std::time::Duration;

use serde::de::{DeserializeOwned, IgnoredAny};
use ureq::http::uri::Authority;
use ureq::http::{Method, Request, Response, Uri};
use ureq::{Agent, AsSendBody, Body, RequestBuilder};

use super::fault::ServerFault;
use crate::cli::failure::error_words;

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
/// The time limit of sending or downloading a file.
const TRANSFER_MAX: Duration = Duration::from_secs(3600);

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

    /// The host with its port, and the prefix of every path.
    pub fn parts(&self) -> (&str, &str) {
        let rest = self.0.strip_prefix("http://").unwrap_or(&self.0);
        rest.split_at(rest.find('/').unwrap_or(rest.len()))
    }
}

impl fmt::Display for ServerUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A file that is being downloaded.
pub struct Download {
    /// Its contents.
    pub contents: Box<dyn Read + Send>,
    /// Its entity tag, without quotes.
    pub etag: Option<String>,
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
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ServerFault> {
        let request = self.agent.get(self.url(path));
        self.read(self.authorized(request).call())
    }

    /// POST with an empty body.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, ServerFault> {
        let request = self.agent.post(self.url(path));
        self.read(self.authorized(request).send_empty())
    }

    /// POST of JSON. The server accepts it once, however often it is sent with the same `key`.
    pub fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &[u8],
        key: &str,
    ) -> Result<T, ServerFault> {
        let request = self.agent.post(self.url(path));
        let request = request.header("Idempotency-Key", key).content_type("application/json");
        self.read(self.authorized(request).send(body))
    }

    /// GET of a file.
    pub fn download(&self, path: &str) -> Result<Box<dyn Read + Send>, ServerFault> {
        Ok(self.download_tagged(path)?.contents)
    }

    /// GET of a file with its entity tag.
    pub fn download_tagged(&self, path: &str) -> Result<Download, ServerFault> {
        let request = self.agent.get(self.url(path)).config();
        let request =
            request.timeout_global(Some(TRANSFER_MAX)).timeout_per_read(Some(SILENCE_MAX));
        let answer = self.accepted(self.authorized(request.build()).call())?;
        let etag = answer.headers().get("etag").and_then(|etag| etag.to_str().ok());
        let etag = etag.map(|etag| etag.trim_matches('"').to_owned());
        let body = answer.into_body().into_with_config().limit(u64::MAX);
        Ok(Download { contents: Box::new(body.reader()), etag })
    }

    /// GET of a document, as the service sends it.
    pub fn document(&self, path: &str) -> Result<String, ServerFault> {
        let request = self.agent.get(self.url(path));
        self.read_document(self.authorized(request).call())
    }

    /// POST of a file. Returns the document that the service answers.
    pub fn upload(
        &self,
        path: &str,
        media_type: &str,
        contents: impl AsSendBody,
    ) -> Result<String, ServerFault> {
        let request = self.agent.post(self.url(path)).content_type(media_type);
        let request = request.config().timeout_global(Some(TRANSFER_MAX)).build();
        self.read_document(self.authorized(request).send(contents))
    }

    /// A request without a body, which may take up to `time_max`; returns the body of the response.
    pub fn ask(
        &self,
        method: Method,
        path: &str,
        time_max: Duration,
    ) -> Result<Vec<u8>, ServerFault> {
        self.exchange(self.request(method, path, (), &[])?, time_max)
    }

    /// A request with a body, which may take up to `time_max`; returns the body of the response.
    pub fn send(
        &self,
        method: Method,
        path: &str,
        media_type: &str,
        body: impl AsSendBody,
        time_max: Duration,
    ) -> Result<Vec<u8>, ServerFault> {
        let headers = [("Content-Type", media_type)];
        self.exchange(self.request(method, path, body, &headers)?, time_max)
    }

    /// POST of JSON, answered by a stream of events.
    pub fn post_and_listen(
        &self,
        path: &str,
        body: &[u8],
    ) -> Result<Box<dyn Read + Send>, ServerFault> {
        let headers = [("Content-Type", "application/json"), ("Accept", "text/event-stream")];
        let request = self.request(Method::POST, path, body, &headers)?;
        let request = self.agent.configure_request(request).timeout_global(None);
        let request = request
            .timeout_send_body(Some(TRANSFER_MAX))
            .timeout_recv_response(Some(CALL_MAX))
            .timeout_per_read(Some(SILENCE_MAX));
        self.open(self.agent.run(request.build()))
    }

    fn request<B: AsSendBody>(
        &self,
        method: Method,
        path: &str,
        body: B,
        headers: &[(&str, &str)],
    ) -> Result<Request<B>, ServerFault> {
        let authorization = self.authorization.as_deref().map(|value| ("Authorization", value));
        let mut request = Request::builder().method(method).uri(self.url(path));
        for (name, value) in headers.iter().copied().chain(authorization) {
            request = request.header(name, value);
        }
        request.body(body).map_err(|error| self.unexpected(&error.to_string()))
    }

    fn exchange(
        &self,
        request: Request<impl AsSendBody>,
        time_max: Duration,
    ) -> Result<Vec<u8>, ServerFault> {
        let request = self.agent.configure_request(request);
        let request = request.timeout_global(Some(time_max)).build();
        let answer = self.accepted(self.agent.run(request))?.into_body().into_with_config();
        answer.limit(ANSWER_BYTES_MAX).read_to_vec().map_err(|error| self.unreachable(&error))
    }

    /// The service.
    pub fn server(&self) -> &ServerUrl {
        &self.server
    }

    /// The value of the header `Authorization`, if there is a token.
    pub fn authorization(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// DELETE.
    pub fn delete(&self, path: &str) -> Result<(), ServerFault> {
        let request = self.agent.delete(self.url(path));
        self.accepted(self.authorized(request).call()).map(drop)
    }

    /// GET of a stream of the events after `last_id`; unlimited in time while it is not silent.
    pub fn listen(
        &self,
        path: &str,
        last_id: Option<&str>,
    ) -> Result<Box<dyn Read + Send>, ServerFault> {
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
    ) -> Result<T, ServerFault> {
        let bytes = self.read_bytes(answer)?;
        serde_json::from_slice(&bytes).map_err(|error| self.unexpected(&error.to_string()))
    }

    /// The response's JSON as it is, with its keys in their order.
    fn read_document(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<String, ServerFault> {
        let bytes = self.read_bytes(answer)?;
        serde_json::from_slice::<IgnoredAny>(&bytes)
            .map_err(|error| self.unexpected(&error.to_string()))?;
        String::from_utf8(bytes).map_err(|error| self.unexpected(&error.to_string()))
    }

    fn read_bytes(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Vec<u8>, ServerFault> {
        let mut answer = self.accepted(answer)?;
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        bytes.map_err(|error| self.unreachable(&error))
    }

    fn open(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Box<dyn Read + Send>, ServerFault> {
        let body = self.accepted(answer)?.into_body().into_with_config();
        Ok(Box::new(body.limit(u64::MAX).reader()))
    }

    /// A successful response; otherwise the error that the server sent.
    fn accepted(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, ServerFault> {
        let mut answer = answer.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.body_mut().with_config().limit(ERROR_BYTES_MAX).read_to_vec();
        let (status, server) = (status.as_u16(), self.server.0.clone());
        Err(ServerFault::Refused { status, body: body.unwrap_or_default(), server })
    }

    fn unreachable(&self, error: &ureq::Error) -> ServerFault {
        self.gone(&match error {
            ureq::Error::Io(error) => error_words(error),
            error => error.to_string().to_lowercase(),
        })
    }

    /// The service cannot be reached, for the reason in `words`.
    pub fn gone(&self, words: &str) -> ServerFault {
        let server = &self.server.0;
        ServerFault::Unreachable(format!("--server: {server}: {words}; is the service running?"))
    }

    /// The response is not that of a service of ours.
    pub fn unexpected(&self, words: &str) -> ServerFault {
        ServerFault::Unexpected { words: words.to_owned(), server: self.server.0.clone() }
    }
}

/// Percent-encodes `text` for one part of a path. Dots are encoded too: no client or proxy may take them for
/// directories.
pub fn escaped_segment(text: &str) -> String {
    escaped(text, b"").replace('.', "%2E")
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
