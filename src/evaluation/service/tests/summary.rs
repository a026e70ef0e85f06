//! The sum of a batch, as a table.

use std::collections::BTreeMap;

use crate::evaluation::result::{EvaluationStatus, EvaluationStep, EvaluationVerdict};
use crate::evaluation::service::batch::{BatchEntry, summary_json};
use crate::evaluation::service::record::RecordFile;

fn entry(mark: char) -> BatchEntry {
    use EvaluationStatus::{Cancelled, Completed, Failed, Pending, Running};
    let (status, verdict, passed) = match mark {
        'p' => (Pending, None, None),
        'r' => (Running, None, None),
        'R' => (Completed, Some(EvaluationVerdict::Resolved), Some(true)),
        'U' => (Failed, Some(EvaluationVerdict::Unresolved), Some(false)),
        'I' => (Failed, Some(EvaluationVerdict::InfraError), None),
        _ => (Cancelled, Some(EvaluationVerdict::Cancelled), None),
    };
    let record = RecordFile {
        eval_id: mark.to_string(),
        owner: String::new(),
        order: 0,
        created_at: String::new(),
        started_at: None,
        finished_at: None,
        status,
        step: EvaluationStep::Queued,
        verdict,
        passed,
        labels: BTreeMap::new(),
        task_url: "u".to_owned(),
        language: None,
        batch_id: None,
        idempotency: None,
    };
    BatchEntry { agent: "a".to_owned(), record }
}

#[test]
fn a_batch_is_summed_up_by_what_has_ended() {
    for (marks, is_cancelled, status, rate, flaky) in [
        ("pp", false, "running", None, false),
        ("RRp", false, "running", Some(1.0), false),
        ("RU", false, "done", Some(0.5), true),
        ("RI", false, "done", Some(1.0), false),
        ("II", false, "done", None, false),
        ("UC", true, "cancelled", Some(0.0), false),
        ("Cr", true, "running", None, false),
    ] {
        let entries: Vec<_> = marks.chars().map(entry).collect();
        let text = summary_json("b", is_cancelled, &entries).unwrap();
        let sum: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sum["status"], status, "{marks}");
        assert_eq!(sum["resolved_rate"].as_f64(), rate, "{marks}");
        assert_eq!(sum["tasks"]["u"]["flaky"], flaky, "{marks}");
        assert_eq!(sum["agents"]["a"]["total"], marks.len(), "{marks}");
    }
}
