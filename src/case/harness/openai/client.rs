//! One request to the endpoint of a model.

use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread::Builder;
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ureq::http::{HeaderMap, HeaderValue, Response, Uri, header};
use ureq::tls::TlsConfig;
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use super::access::{ModelAccess, is_tls};
use super::answer::PostedAnswer;
use super::key::ModelKey;
use crate::egress::rules::RequestPlan;
use crate::evaluation::cache::is_raised;
use crate::evaluation::download::{DeniedAddress, DownloadError, JudgingResolver, system_tls};
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::sync::cancel::CancelToken;
use cofferdam_core::values::deadline::Deadline;

/// The longest answer, bytes.
pub(super) const RESPONSE_BYTES_MAX: u64 = 16 << 20;
/// How long one request may take.
const REQUEST_MAX: Duration = Duration::from_mins(10);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How often a caller that waits looks whether it is cancelled.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Sends requests to one endpoint.
#[derive(Debug)]
pub(super) struct ModelClient {
    access: ModelAccess,
    url: WebUrl,
    key: Option<ModelKey>,
    tls: TlsConfig,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PostFault {
    /// The endpoint may not be reached.
    Denied(String),
    /// The connection failed: it may not the next time.
    Connection(String),
    /// The answer is longer than allowed.
    TooLarge,
    /// The step's time is over.
    Late,
    /// The call is cancelled.
    Cancelled,
    /// The supervisor itself failed.
    Failed(String),
}

impl ModelClient {
    /// A client for `url`.
    pub(super) fn new(access: ModelAccess, url: WebUrl, key: Option<ModelKey>) -> Self {
        Self { access, url, key, tls: system_tls() }
    }

    /// `bytes` without the key.
    pub(super) fn redact(&self, bytes: Vec<u8>) -> Vec<u8> {
        match &self.key {
            Some(key) => key.redact(bytes),
            None => bytes,
        }
    }

    /// Sends `body` and waits for the answer, until `deadline` or until `cancel` is raised. The thread of a request
    /// that is given up ends with the request, which has a limit of its own.
    pub(super) fn post(
        self: &Arc<Self>,
        body: Vec<u8>,
        deadline: Deadline,
        cancel: &CancelToken,
    ) -> Result<PostedAnswer, PostFault> {
        let (tell, told) = sync_channel(1);
        let client = Arc::clone(self);
        let send = move || {
            // The caller may have given up.
            let _ = tell.send(client.send(&body, deadline));
        };
        let started = Builder::new().name("model".to_owned()).spawn(send);
        started.map_err(|error| PostFault::Failed(format!("start thread: {error}")))?;
        loop {
            match told.recv_timeout(LOOK_EVERY) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) if is_raised(cancel) => {
                    return Err(PostFault::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) if deadline.passed() => return Err(PostFault::Late),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(PostFault::Failed("the request's thread ended".to_owned()));
                }
            }
        }
    }

    fn send(&self, body: &[u8], deadline: Deadline) -> Result<PostedAnswer, PostFault> {
        let mut headers = self.headers()?;
        let plan = self.access.judge(&self.url, &headers).map_err(PostFault::Denied)?;
        let mut url = self.url.as_str().to_owned();
        let (mut within, mut bytes_max) =
            (deadline.remaining().min(REQUEST_MAX), RESPONSE_BYTES_MAX);
        if let Some(RequestPlan { target, headers: planned, limits, .. }) = &plan {
            let scheme = if is_tls(&self.url) { "https" } else { "http" };
            url = format!("{scheme}://{}:{}{target}", self.url.host(), self.url.port());
            headers = planned.clone();
            within = within.min(limits.wait);
            bytes_max = bytes_max.min(limits.response_bytes_max.unwrap_or(u64::MAX));
            if limits.request_bytes_max.is_some_and(|most| body.len() as u64 > most) {
                return Err(PostFault::Denied(
                    "a rule allows no request of this length".to_owned(),
                ));
            }
        }
        let answer = self.exchange(&url, &headers, body, within, deadline)?;
        let search = plan.and_then(|plan| plan.search);
        let answer = receive(answer, bytes_max, deadline)?;
        let body = search.and_then(|search| search.redact(&answer.body)).unwrap_or(answer.body);
        Ok(PostedAnswer { body: self.redact(body), ..answer })
    }

    fn headers(&self) -> Result<HeaderMap, PostFault> {
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json.clone());
        headers.insert(header::ACCEPT, json);
        if let Some(key) = &self.key {
            let value = HeaderValue::from_str(&key.header());
            let mut value =
                value.map_err(|_| PostFault::Failed("the key is no header".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        Ok(headers)
    }

    fn exchange(
        &self,
        url: &str,
        headers: &HeaderMap,
        body: &[u8],
        within: Duration,
        deadline: Deadline,
    ) -> Result<Response<Body>, PostFault> {
        if within.is_zero() {
            return Err(PostFault::Late);
        }
        let config = Agent::config_builder()
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .max_idle_connections(0)
            .user_agent("cofferdam")
            .tls_config(self.tls.clone())
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_global(Some(within))
            .build();
        let denied = DeniedAddress::default();
        let resolver = JudgingResolver::new(self.access.terms.clone(), denied.clone());
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let uri: Uri = url.parse().map_err(|_| PostFault::Denied(format!("{url} is no URL")))?;
        let mut request = agent.post(uri);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        request.send(body).map_err(|error| match denied.take() {
            Some(DownloadError::UrlDenied { host, port, reason }) => {
                PostFault::Denied(format!("{host}:{port} may not be reached: {}", reason.word()))
            }
            Some(error) => PostFault::Failed(error.to_string()),
            None if deadline.passed() => PostFault::Late,
            None => PostFault::Connection(format!("the endpoint cannot be reached: {error}")),
        })
    }
}

fn receive(
    response: Response<Body>,
    bytes_max: u64,
    deadline: Deadline,
) -> Result<PostedAnswer, PostFault> {
    let status = response.status().as_u16();
    let text = |name| {
        let value = response.headers().get(name)?;
        value.to_str().ok().map(str::to_owned)
    };
    let retry_after = text(header::RETRY_AFTER);
    let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if length.is_some_and(|length| length > bytes_max) {
        return Err(PostFault::TooLarge);
    }
    let mut body = Vec::new();
    let reader = response.into_body().into_reader();
    let read = reader.take(bytes_max.saturating_add(1)).read_to_end(&mut body);
    let bytes = body.len() as u64;
    match read {
        _ if bytes > bytes_max => Err(PostFault::TooLarge),
        Err(_) if deadline.passed() => Err(PostFault::Late),
        Err(error) => Err(PostFault::Connection(format!("the answer did not come whole: {error}"))),
        Ok(_) if length.is_some_and(|length| length != bytes) => {
            Err(PostFault::Connection("the connection ended early".to_owned()))
        }
        Ok(_) => Ok(PostedAnswer { status, retry_after, body }),
    }
}

/// Waits for `wait`, or until `cancel` is raised. Returns whether it is.
pub(super) fn cancelled_within(cancel: &CancelToken, wait: Duration) -> bool {
    let until = Deadline::after(wait);
    while !until.passed() {
        let left = PollTimeout::try_from(until.remaining()).unwrap_or(PollTimeout::MAX);
        let mut polled = [PollFd::new(cancel.as_fd(), PollFlags::POLLIN)];
        // A signal or an early wake-up only makes it look again.
        if poll(&mut polled, left).is_ok_and(|ready| ready > 0) {
            return true;
        }
    }
    is_raised(cancel)
}
