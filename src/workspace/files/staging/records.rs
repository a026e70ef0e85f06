//! What the service writes into `metadata.json`.

use std::time::SystemTime;

use crate::workspace::error::EngineError;
use crate::workspace::files::error::engine_error;
use crate::workspace::helpers::{METADATA_BYTES_MAX, WorkspaceMetadata};
use cofferdam_core::values::utc::rfc3339;
use cofferdam_tree::files::{WorkspaceRoot, load_metadata};

/// The contents of `metadata.json` with the records that `add` adds. A file that holds no metadata counts as absent.
/// Nothing if there is no room for the records beside what a program has put there.
///
/// # Errors
/// The file cannot be read.
pub fn metadata_with(
    root: &WorkspaceRoot<'_>,
    now: SystemTime,
    add: impl FnOnce(&mut WorkspaceMetadata),
) -> Result<Option<Vec<u8>>, EngineError> {
    let contents = load_metadata(root).map_err(engine_error)?;
    let parsed = contents.and_then(|contents| WorkspaceMetadata::parse(&contents).ok());
    let mut metadata = parsed.unwrap_or_else(|| WorkspaceMetadata::new(now));
    add(&mut metadata);
    metadata.updated_at = rfc3339(now);
    metadata.last_access = rfc3339(now);
    Ok(fitted(metadata))
}

/// The contents of the file. The oldest inputs and outputs are left out where it would be too long to be read again.
fn fitted(mut metadata: WorkspaceMetadata) -> Option<Vec<u8>> {
    loop {
        let contents = metadata.to_contents();
        if contents.len() as u64 <= METADATA_BYTES_MAX {
            return Some(contents);
        }
        let (inputs, outputs) = (metadata.inputs.len(), metadata.outputs.len());
        if inputs + outputs == 0 {
            return None;
        }
        metadata.inputs.drain(..inputs.div_ceil(2));
        metadata.outputs.drain(..outputs.div_ceil(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::helpers::InputRecord;

    #[test]
    fn the_oldest_records_go_where_there_is_no_room_and_nothing_else() {
        let mut metadata = WorkspaceMetadata::new(SystemTime::UNIX_EPOCH);
        let record = |n: usize| InputRecord {
            from: n.to_string(),
            to: "x".repeat(1000),
            ..InputRecord::default()
        };
        metadata.inputs = (0..2000).map(record).collect();
        let fits = fitted(metadata.clone()).unwrap();
        let fits = WorkspaceMetadata::parse(&fits).unwrap();
        assert!(fits.inputs.len() >= 500 && fits.inputs.last() == metadata.inputs.last());
        let long = serde_json::Value::from("x".repeat(1 << 20));
        metadata.other.insert("mine".to_owned(), long);
        assert_eq!(fitted(metadata), None);
    }
}
