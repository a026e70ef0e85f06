//! Parses the path of a request for an evaluation or a batch.

use axum::http::Uri;

use crate::http::request::percent_decode;

/// The prefix of all paths that name an evaluation.
pub const EVALUATION_PREFIX: &str = "/evaluate/";
/// The prefix of all paths that name a batch.
pub const BATCH_PREFIX: &str = "/evaluations/batch/";

/// Returns the id behind `prefix`. One that is malformed is the empty one, which names nothing.
pub fn id_behind(uri: &Uri, prefix: &str) -> String {
    let behind = uri.path().strip_prefix(prefix).unwrap_or_default();
    behind.split('/').next().and_then(percent_decode).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_an_evaluation_exactly() {
        for (path, id) in [
            ("/evaluate/a-1", "a-1"),
            ("/evaluate/%61/patch?x", "a"),
            ("/evaluate/a%2Fb", "a/b"),
            ("/evaluate/%ff", ""),
            ("/evaluate/", ""),
            ("/evaluations/batch/x", ""),
        ] {
            assert_eq!(id_behind(&path.parse().unwrap(), EVALUATION_PREFIX), id, "{path}");
        }
    }
}
