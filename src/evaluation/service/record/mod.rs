//! Records of evaluations on disk.
//!
//! ```text
//! <store>/evaluations/<eval_id>/           record.json events.jsonl, at the end patch result.json
//! <store>/evaluations/batches/<batch_id>/  batch.json agent-N, while an item waits env-N
//! <store>/evaluations/quarantine/          damaged records, each with the time appended to its name
//! <store>/evaluations/lock                 locked by the one service that owns the records
//! ```
//!
//! A directory is filled under a name that begins with a dot and then renamed; files are replaced whole.
//! `result.json` decides that an evaluation has ended; `record.json` says so after the last event is
//! written.

mod ending;
mod events;
mod files;
mod record_file;
mod records;

pub use ending::{bounded_json, patch_bytes};
pub use events::EventLog;
pub(super) use files::{json_bytes, parsed, remove, remove_renamed};
pub use record_file::{EvaluationLine, RecordFile};
pub use records::{EvaluationRecords, FoundRecord, RESULT_BYTES_MAX, has_records};
