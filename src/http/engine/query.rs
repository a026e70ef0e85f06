//! The query and the path of a request.

use std::collections::BTreeMap;

use axum::http::Uri;

use crate::http::request::percent_decode;
use crate::workspace::{EngineCode, EngineError};

/// The prefix of all paths that name a workspace.
pub const WORKSPACES: &str = "/v1/workspaces/";

/// The parameters of a query, each known and there once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryParams(BTreeMap<String, String>);

impl QueryParams {
    /// Parses the query of `uri`.
    ///
    /// # Errors
    /// The first parameter that is not in `known`, there twice or malformed.
    pub fn parse(uri: &Uri, known: &[&str]) -> Result<Self, EngineError> {
        let mut params = BTreeMap::new();
        let query = uri.query().unwrap_or_default();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let key = form_decode(key).ok_or_else(|| EngineError::invalid("", "malformed"))?;
            let value =
                form_decode(value).ok_or_else(|| EngineError::invalid(&key, "malformed"))?;
            if !known.contains(&key.as_str()) {
                return Err(EngineError::invalid(&key, unknown(known)));
            }
            if params.insert(key.clone(), value).is_some() {
                return Err(EngineError::invalid(&key, "there twice"));
            }
        }
        Ok(Self(params))
    }

    /// The value of a parameter, if it is there.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// The value of a parameter that is true or false; false if it is not there.
    ///
    /// # Errors
    /// It is neither.
    pub fn flag(&self, key: &str) -> Result<bool, EngineError> {
        match self.get(key) {
            None | Some("false" | "0") => Ok(false),
            Some("true" | "1") => Ok(true),
            Some(_) => Err(EngineError::invalid(key, "want true or false")),
        }
    }
}

/// Decodes a part of a query as clients encode forms: a `+` is a space, and a plus is `%2B`.
fn form_decode(encoded: &str) -> Option<String> {
    percent_decode(&encoded.replace('+', " "))
}

fn unknown(known: &[&str]) -> String {
    match known {
        [] => "unknown; the request takes no query".to_owned(),
        [one] => format!("unknown; want {one}"),
        [others @ .., last] => format!("unknown; want {} or {last}", others.join(", ")),
    }
}

/// The workspace that a path names.
///
/// # Errors
/// The name cannot be one.
pub fn workspace_id(uri: &Uri) -> Result<String, EngineError> {
    let behind = uri.path().strip_prefix(WORKSPACES).unwrap_or_default();
    let name = behind.split('/').next().and_then(percent_decode);
    name.ok_or_else(|| EngineError::new(EngineCode::WorkspaceNotFound, "no such workspace"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(query: &str) -> Result<QueryParams, EngineError> {
        let uri: Uri = format!("/v1/workspaces?{query}").parse().unwrap();
        QueryParams::parse(&uri, &["exec_id", "purge"])
    }

    #[test]
    fn a_query_has_each_known_parameter_at_most_once() {
        let params = parse("exec%5Fid=a%20b+c%2Bd&&purge=1").unwrap();
        assert_eq!(params.get("exec_id"), Some("a b c+d"));
        assert_eq!((params.flag("purge"), params.get("other")), (Ok(true), None));
        assert_eq!(parse("").unwrap().flag("purge"), Ok(false));
        for (query, path) in
            [("x=1", "x"), ("purge=1&purge=1", "purge"), ("exec_id=%ff", "exec_id"), ("%=1", "")]
        {
            assert_eq!(parse(query).unwrap_err().details["path"], path, "{query}");
        }
        assert_eq!(parse("purge=yes").unwrap().flag("purge").unwrap_err().details["path"], "purge");
    }

    #[test]
    fn a_path_names_a_workspace() {
        for (path, id) in [
            ("/v1/workspaces/ws_1", Some("ws_1")),
            ("/v1/workspaces/ws%5F1/run", Some("ws_1")),
            ("/v1/workspaces/a%2Fb", Some("a/b")),
            ("/v1/workspaces/%ff", None),
        ] {
            let uri: Uri = path.parse().unwrap();
            assert_eq!(workspace_id(&uri).ok().as_deref(), id, "{path}");
        }
    }
}
