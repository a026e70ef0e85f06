//! HTTP to a service of jobs, every answer bounded in bytes and time.

use std::io::Read;
use std::time::Duration;

use serde::de::DeserializeOwned;
use ureq::http::uri::Authority;
use ureq::http::{Response, StatusCode, Uri};
use ureq::{Agent, Body, RequestBuilder};

use super::super::failure::error_words;
use super::fault::Fault;
use cofferdam_core::job::JobError;

/// The longest answer that is read as JSON, bytes: a result, or a list.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// The longest answer that tells of an error, bytes.
const ERROR_BYTES_MAX: u64 = 1 << 20;
/// How long a connection may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long one question may take with its answer.
const CALL_MAX: Duration = Duration::from_secs(30);
/// How long a stream may be silent; a server's own pings are more frequent.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// How long a file may take.
const DOWNLOAD_MAX: Duration = Duration::from_secs(3600);

/// Where a service is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Takes `http://HOST[:PORT][/PREFIX]`.
    pub fn parse(text: &str) -> Result<Self, String> {
        const WANT: &str = "want http://HOST:PORT";
        if text.starts_with("https:") {
            return Err("https is not spoken here; use http:// to a tunnel or proxy of this host \
                 that speaks it"
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

/// Asks one service.
#[derive(Debug, Clone)]
pub struct Client {
    agent: Agent,
    server: ServerUrl,
    /// The whole header.
    authorization: Option<String>,
}

impl Client {
    /// One that shows `token`, where there is one.
    pub fn new(server: &ServerUrl, token: Option<&str>) -> Self {
        let agent = Agent::config_builder()
            .http_status_as_error(false)
            // A token is for whom it was meant.
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
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let request = self.agent.get(self.url(path));
        self.read(self.authorized(request).call())
    }

    /// POST of nothing.
    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, Fault> {
        let request = self.agent.post(self.url(path));
        self.read(self.authorized(request).send_empty())
    }

    /// POST of JSON, which is taken once however often it is sent with the same `key`.
    pub fn post_once<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &[u8],
        key: &str,
    ) -> Result<T, Fault> {
        let request = self.agent.post(self.url(path));
        let request = request.header("Idempotency-Key", key).content_type("application/json");
        self.read(self.authorized(request).send(body))
    }

    /// GET of a file.
    pub fn download(&self, path: &str) -> Result<Box<dyn Read + Send>, Fault> {
        let request = self.agent.get(self.url(path)).config();
        let request =
            request.timeout_global(Some(DOWNLOAD_MAX)).timeout_per_read(Some(SILENCE_MAX));
        self.open(self.authorized(request.build()).call())
    }

    /// GET of a stream of events, those after `last_id`; without end for as long as it is not
    /// silent.
    pub fn listen(&self, path: &str, last_id: Option<&str>) -> Result<Box<dyn Read + Send>, Fault> {
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
    ) -> Result<T, Fault> {
        let mut answer = self.accepted(answer)?;
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec();
        let bytes = bytes.map_err(|error| self.unanswered(&error))?;
        serde_json::from_slice(&bytes).map_err(|error| self.strange(&error.to_string()))
    }

    fn open(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Box<dyn Read + Send>, Fault> {
        let body = self.accepted(answer)?.into_body().into_with_config();
        Ok(Box::new(body.limit(u64::MAX).reader()))
    }

    /// An answer that is what was asked for; an error in the server's own words otherwise.
    fn accepted(
        &self,
        answer: Result<Response<Body>, ureq::Error>,
    ) -> Result<Response<Body>, Fault> {
        let mut answer = answer.map_err(|error| self.unanswered(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let body = answer.body_mut().with_config().limit(ERROR_BYTES_MAX).read_to_vec();
        let told = body.ok().and_then(|body| serde_json::from_slice::<JobError>(&body).ok());
        match told {
            Some(error) => Err(error.into()),
            None => Err(self.strange(&status_words(status))),
        }
    }

    fn unanswered(&self, error: &ureq::Error) -> Fault {
        let words = match error {
            ureq::Error::Io(error) => error_words(error),
            error => error.to_string().to_lowercase(),
        };
        Fault::Server(format!("--server: {}: {words}; is the service there?", self.server.0))
    }

    fn strange(&self, words: &str) -> Fault {
        let server = &self.server.0;
        Fault::Server(format!("--server: {server}: {words}; want a cofferdam service with jobs"))
    }
}

fn status_words(status: StatusCode) -> String {
    format!("answered {}", status.as_u16())
}

/// `text` as a part of a path or a query; `kept` stays as it is.
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
    fn a_server_is_plain_http_and_https_has_advice() {
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
    fn nothing_of_a_name_is_read_as_a_part_of_the_url() {
        assert_eq!(escaped("out/a b?#%é", b"/"), "out/a%20b%3F%23%25%C3%A9");
        assert_eq!(escaped("a/b", b""), "a%2Fb");
    }
}
