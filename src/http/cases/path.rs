//! Parses the path of a request for a run.

use axum::http::Uri;

use crate::http::request::percent_decode;

/// The prefix of all paths that name a run.
pub const PREFIX: &str = "/v1/cases/";

/// Returns the run that a path names. One that is malformed is the empty one, which names nothing.
pub fn run_id(uri: &Uri) -> String {
    let behind = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    behind.split('/').next().and_then(percent_decode).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_run_exactly() {
        for (path, id) in [
            ("/v1/cases/run_1", "run_1"),
            ("/v1/cases/%72un_1/report.html?x", "run_1"),
            ("/v1/cases/a%2Fb", "a/b"),
            ("/v1/cases/%2e%2e/results", ".."),
            ("/v1/cases/%ff", ""),
            ("/v1/cases/", ""),
            ("/v1/jobs/a", ""),
        ] {
            assert_eq!(run_id(&path.parse().unwrap()), id, "{path}");
        }
    }
}
