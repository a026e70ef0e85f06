//! One request for an archive, with its redirects.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ureq::http::{Response, StatusCode, header};
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::transport::DefaultConnector;
use ureq::{Agent, Body};

use super::error::DownloadError;
use super::resolver::{DeniedAddress, JudgingResolver};
use crate::egress::EgressTerms;
use crate::evaluation::web_url::WebUrl;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::values::digest::Digest;

/// How long a download may take, with its redirects.
pub const DOWNLOAD_MAX: Duration = Duration::from_secs(120);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How many redirects are followed.
const REDIRECTS_MAX: usize = 5;
/// Bytes read at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Where systems keep the certificates that they trust.
const CERTIFICATE_FILES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// What the server says an answer is the same by.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Validators {
    /// `ETag`.
    pub etag: Option<String>,
    /// `Last-Modified`.
    pub last_modified: Option<String>,
}

/// What a request led to.
#[derive(Debug)]
pub enum DownloadAnswer {
    /// What the caller has is still the same.
    NotModified,
    /// The archive, which was written to the caller's file.
    Archive {
        /// Its digest, 64 hexadecimal digits.
        sha256: String,
        /// Its length.
        bytes: u64,
        /// What it is the same by later.
        validators: Validators,
    },
}

/// Sends requests.
#[derive(Debug)]
pub struct DownloadClient {
    terms: EgressTerms,
    tls: TlsConfig,
    bytes_max: u64,
    timeout: Duration,
}

impl DownloadClient {
    /// A client for archives of at most `bytes_max` bytes.
    pub fn new(terms: EgressTerms, bytes_max: u64, timeout: Duration) -> Self {
        Self { terms, tls: system_tls(), bytes_max, timeout }
    }

    /// Fetches `url` into `file`, unless it is what `known` says. Ends early once `is_over` is set.
    ///
    /// # Errors
    /// It may not be reached, is too large, or did not come.
    pub fn fetch(
        &self,
        url: &WebUrl,
        known: &Validators,
        file: &mut File,
        is_over: &AtomicBool,
    ) -> Result<DownloadAnswer, DownloadError> {
        let deadline = Deadline::after(self.timeout);
        let mut url = url.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.send(&url, known, deadline)?;
            let status = response.status();
            let has_validators = known.etag.is_some() || known.last_modified.is_some();
            if status == StatusCode::NOT_MODIFIED && has_validators {
                return Ok(DownloadAnswer::NotModified);
            }
            if status == StatusCode::OK {
                return self.receive(response, file, deadline, is_over);
            }
            let location = response.headers().get(header::LOCATION);
            let location = location.filter(|_| status.is_redirection());
            let Some(location) = location.and_then(|value| value.to_str().ok()) else {
                return Err(failed(format!("the server answered {}", status.as_u16())));
            };
            let joined = url.join(location);
            url =
                joined.map_err(|reason| failed(format!("a redirect leads to no URL: {reason}")))?;
        }
        Err(failed(format!("more than {REDIRECTS_MAX} redirects")))
    }

    fn send(
        &self,
        url: &WebUrl,
        known: &Validators,
        deadline: Deadline,
    ) -> Result<Response<Body>, DownloadError> {
        let left = deadline.remaining();
        if left.is_zero() {
            return Err(self.timed_out());
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
            .timeout_global(Some(left))
            .build();
        let denied = DeniedAddress::default();
        let resolver = JudgingResolver::new(self.terms.clone(), denied.clone());
        let agent = Agent::with_parts(config, DefaultConnector::default(), resolver);
        let mut request = agent.get(url.as_str());
        for (name, value) in [
            (header::IF_NONE_MATCH, &known.etag),
            (header::IF_MODIFIED_SINCE, &known.last_modified),
        ] {
            if let Some(value) = value {
                request = request.header(name, value);
            }
        }
        request.call().map_err(|error| denied.take().unwrap_or_else(|| self.error_of(&error)))
    }

    fn receive(
        &self,
        response: Response<Body>,
        file: &mut File,
        deadline: Deadline,
        is_over: &AtomicBool,
    ) -> Result<DownloadAnswer, DownloadError> {
        let text = |name| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let validators =
            Validators { etag: text(header::ETAG), last_modified: text(header::LAST_MODIFIED) };
        let length = text(header::CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
        let too_large = || DownloadError::TooLarge { bytes_max: self.bytes_max };
        if length.is_some_and(|length| length > self.bytes_max) {
            return Err(too_large());
        }
        let mut body = response.into_body().into_reader();
        let (mut digest, mut bytes) = (Digest::default(), 0_u64);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            if is_over.load(Ordering::Acquire) {
                return Err(DownloadError::Cancelled);
            }
            if deadline.passed() {
                return Err(self.timed_out());
            }
            let read = body.read(&mut piece).map_err(|error| {
                if deadline.passed() { self.timed_out() } else { failed(error.to_string()) }
            })?;
            let Some(read) = piece.get(..read).filter(|read| !read.is_empty()) else { break };
            bytes = bytes.saturating_add(read.len() as u64);
            if bytes > self.bytes_max {
                return Err(too_large());
            }
            digest.update(read);
            file.write_all(read).map_err(|error| DownloadError::Cache(error.to_string()))?;
        }
        if length.is_some_and(|length| length != bytes) {
            return Err(failed("the connection ended early".to_owned()));
        }
        file.sync_all().map_err(|error| DownloadError::Cache(error.to_string()))?;
        Ok(DownloadAnswer::Archive { sha256: digest.finish(), bytes, validators })
    }

    fn error_of(&self, error: &ureq::Error) -> DownloadError {
        match error {
            ureq::Error::Timeout(ureq::Timeout::Connect) => {
                failed("the server could not be reached".to_owned())
            }
            ureq::Error::Timeout(_) => self.timed_out(),
            error => failed(error.to_string()),
        }
    }

    fn timed_out(&self) -> DownloadError {
        DownloadError::TimedOut { seconds: self.timeout.as_secs() }
    }
}

fn failed(message: String) -> DownloadError {
    DownloadError::Failed { message }
}

/// TLS that trusts the certificates in the file `SSL_CERT_FILE`, or else those of the system.
pub fn system_tls() -> TlsConfig {
    let given = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = CERTIFICATE_FILES.iter().map(PathBuf::from);
    let file = given.or_else(|| known.into_iter().find(|path| path.is_file()));
    let certificates = file.map(|path| certificates(&path)).unwrap_or_default();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(provider)
        .build()
}

/// The certificates in the file at `path`. What cannot be parsed is left out.
fn certificates(path: &Path) -> Vec<Certificate<'static>> {
    let text = fs::read(path).unwrap_or_else(|error| {
        log::warn!("{}: {error}", path.display());
        Vec::new()
    });
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    parse_pem(&text).filter_map(certificate).collect()
}
