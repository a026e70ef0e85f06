//! What events of a job say.

use serde::Deserialize;

use crate::cli::remote::events::ServerSentEvent;
use cofferdam_core::job::JobStatus;

/// The data of a `status` event.
#[derive(Debug, Deserialize)]
struct StatusEventData {
    status: JobStatus,
}

/// The status in a `status` event.
pub fn status_of(event: &ServerSentEvent) -> Option<JobStatus> {
    let data: StatusEventData = serde_json::from_str(&event.data).ok()?;
    (event.name == "status").then_some(data.status)
}

/// The bytes of stdout and stderr up to this event, from an id such as `o12.e3`.
pub fn offsets_of(event: &ServerSentEvent) -> Option<(u64, u64)> {
    let (stdout, stderr) = event.id.as_deref()?.strip_prefix('o')?.split_once(".e")?;
    Some((stdout.parse().ok()?, stderr.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_status_event_has_a_status() {
        let event = |name: &str| ServerSentEvent {
            name: name.to_owned(),
            data: r#"{"status":"running"}"#.to_owned(),
            ..ServerSentEvent::default()
        };
        assert_eq!(status_of(&event("status")), Some(JobStatus::Running));
        assert_eq!(status_of(&event("stdout")), None);
    }

    #[test]
    fn an_id_that_is_not_a_pair_of_offsets_is_ignored() {
        let offsets = |id: &str| {
            offsets_of(&ServerSentEvent { id: Some(id.to_owned()), ..ServerSentEvent::default() })
        };
        assert_eq!(offsets("o12.e3"), Some((12, 3)));
        for id in ["", "12", "o1", "o1.e", "o.e1", "o1.ex", "o-1.e1", "o99999999999999999999.e1"] {
            assert_eq!(offsets(id), None, "{id}");
        }
    }
}
