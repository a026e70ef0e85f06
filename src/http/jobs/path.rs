//! Parses the path of a job request.

use axum::http::Uri;

use crate::http::error::HttpError;
use crate::http::request::percent_decode;
use cofferdam_core::job::{ErrorCode, JobError, JobId};

/// The prefix of all paths that name a job.
pub const PREFIX: &str = "/v1/jobs/";

/// Returns the job that a path names. An invalid id is reported as an unknown job.
pub fn job_id(uri: &Uri) -> Result<JobId, HttpError> {
    let behind = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let name = behind.split('/').next().and_then(percent_decode);
    let id = name.and_then(|name| JobId::parse(&name).ok());
    id.ok_or_else(|| JobError::not_found().into())
}

/// Returns the artifact that a path names. The service knows whether it exists.
pub fn artifact_path(uri: &Uri) -> Result<String, HttpError> {
    let behind = uri.path().strip_prefix(PREFIX).unwrap_or_default();
    let path = behind.split_once("/artifacts/").and_then(|(_, path)| percent_decode(path));
    path.ok_or_else(|| JobError::new(ErrorCode::JobNotFound, "no such artifact").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_job_and_an_artifact_exactly() {
        for (path, id, artifact) in [
            ("/v1/jobs/job_1", Some("job_1"), None),
            ("/v1/jobs/%6Aob_1/cancel", Some("job_1"), None),
            ("/v1/jobs/a/artifacts/out/a.txt", Some("a"), Some("out/a.txt")),
            ("/v1/jobs/a/artifacts/b%20c/%C3%A9", Some("a"), Some("b c/é")),
            ("/v1/jobs/a/artifacts/x/artifacts/y", Some("a"), Some("x/artifacts/y")),
            ("/v1/jobs/a/artifacts/../../b", Some("a"), Some("../../b")),
            ("/v1/jobs/a/artifacts/%ff", Some("a"), None),
            ("/v1/jobs/.a", None, None),
            ("/v1/jobs/%2e%2e/artifacts/x", None, Some("x")),
            ("/v1/jobs/a%2Fb", None, None),
            ("/v1/jobs/a%00", None, None),
            ("/v1/jobs/%ff", None, None),
            ("/v1/jobs//artifacts/x", None, Some("x")),
        ] {
            let uri: Uri = path.parse().unwrap();
            let parsed = job_id(&uri).ok();
            assert_eq!(parsed.as_ref().map(JobId::as_str), id, "{path}");
            assert_eq!(artifact_path(&uri).ok().as_deref(), artifact, "{path}");
        }
    }
}
