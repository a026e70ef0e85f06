//! One rule: which requests it fits, and what it does with them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::{HeaderName, Method};
use cofferdam_core::weakened::{self, Wall};
use cofferdam_core::{RuleAction, RuleObject};

use super::fault::NetworkFault;
use super::glob::PathGlob;
use super::template::RuleTemplate;

/// How long the head of an answer may take if a rule does not say.
const WAIT_DEFAULT: Duration = Duration::from_mins(10);
/// Headers that belong to the message or the connection, and so to the proxy. Those of proxies too.
const OWN_HEADERS: [&str; 5] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade"];
const PROXY_PREFIX: &str = "proxy-";

/// How much a request that a rule allows may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuleLimits {
    /// The longest body of the request.
    pub request_bytes_max: Option<u64>,
    /// The longest body of its answer.
    pub response_bytes_max: Option<u64>,
    /// How long the head of the answer may take.
    pub wait: Duration,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    pub is_denial: bool,
    pub plain: Option<bool>,
    methods: Option<Vec<String>>,
    path: PathGlob,
    /// Headers to set.
    pub headers: Vec<(HeaderName, RuleTemplate)>,
    pub removed_headers: Vec<HeaderName>,
    /// Parameters of the query to set.
    pub query: Vec<(String, RuleTemplate)>,
    pub requests_max: Option<u64>,
    pub limits: RuleLimits,
    pub allows_websocket: bool,
}

impl Rule {
    /// Parses the rule at `path`.
    pub fn parse(path: &str, object: &RuleObject) -> Result<Self, NetworkFault> {
        let glob = object.path.as_deref().unwrap_or("*");
        let glob = PathGlob::parse(glob).map_err(at(&format!("{path}.path")))?;
        if object.wait_ms == Some(0) {
            return Err(NetworkFault::new(format!("{path}.wait_ms"), "want at least 1"));
        }
        let nothing = RuleObject::default();
        let allowance = if weakened::lacks(Wall::Allowance) { &nothing } else { object };
        Ok(Self {
            is_denial: object.action == Some(RuleAction::Deny),
            plain: object.plain,
            methods: methods(path, object.methods.as_deref())?,
            path: glob,
            headers: headers(path, &object.headers)?,
            removed_headers: removed_headers(path, &object.remove_headers)?,
            query: query(path, &object.query)?,
            requests_max: allowance.requests_max,
            limits: RuleLimits {
                request_bytes_max: allowance.request_bytes_max,
                response_bytes_max: allowance.response_bytes_max,
                wait: allowance.wait_ms.map_or(WAIT_DEFAULT, Duration::from_millis),
            },
            allows_websocket: object.websocket.unwrap_or_default(),
        })
    }

    /// Whether the rule decides over a request with the canonical `path`, whose lenient readings are
    /// `folded`.
    pub fn fits(&self, method: &str, path: &str, folded: &[String]) -> bool {
        let is_known = |known: &String| match self.is_denial {
            true => known.eq_ignore_ascii_case(method),
            false => known == method,
        };
        let fits_method = self.methods.as_ref().is_none_or(|all| all.iter().any(is_known));
        let fits_folded = || self.is_denial && self.path.matches_folded(folded);
        let fits = fits_method && (self.path.matches(path) || fits_folded());
        fits || weakened::lacks(Wall::Rules)
    }

    /// The fields with a template, each with its path below the rule.
    pub fn templates(&self) -> impl Iterator<Item = (String, &RuleTemplate)> {
        let headers =
            self.headers.iter().map(|(name, template)| (format!("headers.{name}"), template));
        let query = self.query.iter().map(|(key, template)| (format!("query.{key}"), template));
        headers.chain(query)
    }
}

/// Makes a fault at `path` of its words.
fn at<'a>(path: &'a str) -> impl Fn(&'static str) -> NetworkFault + 'a {
    move |words| NetworkFault::new(path, words)
}

fn methods(path: &str, given: Option<&[String]>) -> Result<Option<Vec<String>>, NetworkFault> {
    let Some(given) = given else { return Ok(None) };
    let parse = |(index, text): (usize, &String)| {
        let upper = text.to_ascii_uppercase();
        let wrong = || NetworkFault::new(format!("{path}.methods[{index}]"), "want a method");
        Method::from_bytes(upper.as_bytes()).map_err(|_| wrong())?;
        Ok(upper)
    };
    given.iter().enumerate().map(parse).collect::<Result<_, _>>().map(Some)
}

/// The header `text`, if a rule may set it.
pub fn settable_header(text: &str) -> Result<HeaderName, &'static str> {
    let name: HeaderName = text.parse().map_err(|_| "want the name of a header")?;
    let is_own = OWN_HEADERS.contains(&name.as_str()) || name.as_str().starts_with(PROXY_PREFIX);
    if is_own { Err("this header belongs to the connection") } else { Ok(name) }
}

fn headers(
    path: &str,
    given: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, RuleTemplate)>, NetworkFault> {
    let mut parsed: Vec<(HeaderName, RuleTemplate)> = Vec::new();
    for (text, value) in given {
        let path = format!("{path}.headers.{}", text.escape_debug());
        let name = settable_header(text).map_err(at(&path))?;
        if parsed.iter().any(|(known, _)| *known == name) {
            return Err(NetworkFault::new(path, "the header is there twice"));
        }
        if value.chars().any(char::is_control) {
            return Err(NetworkFault::new(path, "holds a control character"));
        }
        parsed.push((name, RuleTemplate::parse(value).map_err(at(&path))?));
    }
    Ok(parsed)
}

fn removed_headers(path: &str, given: &[String]) -> Result<Vec<HeaderName>, NetworkFault> {
    let parse = |(index, text): (usize, &String)| {
        settable_header(text).map_err(at(&format!("{path}.remove_headers[{index}]")))
    };
    given.iter().enumerate().map(parse).collect()
}

fn query(
    path: &str,
    given: &BTreeMap<String, String>,
) -> Result<Vec<(String, RuleTemplate)>, NetworkFault> {
    let parse = |(key, value): (&String, &String)| {
        let path = format!("{path}.query.{}", key.escape_debug());
        if key.chars().chain(value.chars()).any(char::is_control) {
            return Err(NetworkFault::new(path, "holds a control character"));
        }
        Ok((key.clone(), RuleTemplate::parse(value).map_err(at(&path))?))
    };
    given.iter().map(parse).collect()
}
