//! Answers what is asked of runs.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::sync::Arc;

use super::live::LiveRun;
use super::shared::{Shared, store_failed};
use crate::case::service::api::{CaseRunDocument, CaseRunEvents};
use crate::case::service::error::CaseRunsError;
use crate::case::service::record::{EVENTS, EventLog};

/// The results of a run that has ended, a line each.
const RESULTS: &str = "results.jsonl";
/// Bytes that are collected for one write.
const BUFFER_BYTES: usize = 64 << 10;

impl Shared {
    /// The run, if it lives.
    fn live(&self, owner: &str, id: &str) -> Result<Option<Arc<LiveRun>>, CaseRunsError> {
        let mut state = self.state();
        state.of(owner, id)?;
        Ok(state.live_of(id).map(|entry| Arc::clone(&entry.run)))
    }

    /// Opens the report `name` with the results so far.
    pub fn report(
        &self,
        owner: &str,
        id: &str,
        name: &str,
    ) -> Result<CaseRunDocument, CaseRunsError> {
        if let Some(live) = self.live(owner, id)? {
            live.report().map_err(|error| store_failed(&error))?;
            let opened = live.run.open_file(name).map_err(|error| store_failed(&error))?;
            return document(opened);
        }
        document(self.folder()?.open_file(id, name).map_err(|error| store_failed(&error))?)
    }

    /// The results as one document.
    pub fn results(&self, owner: &str, id: &str) -> Result<CaseRunDocument, CaseRunsError> {
        let live = self.live(owner, id)?;
        // It has no name: nothing is left of it when it is closed.
        let scratch =
            tempfile::tempfile_in(&self.settings.store_dir).map_err(|e| unwritable(&e))?;
        let mut out = BufWriter::with_capacity(BUFFER_BYTES, scratch);
        let mut write = |bytes: &[u8]| out.write_all(bytes).map_err(|error| unwritable(&error));
        write(b"{\"cells\":[")?;
        let mut is_first = true;
        let mut add = |line: &[u8]| {
            let separator: &[u8] = if std::mem::take(&mut is_first) { b"" } else { b"," };
            write(separator).and_then(|()| write(line.trim_ascii_end()))
        };
        match live {
            Some(live) => add_live(&live, &mut add)?,
            None => {
                let folder = self.folder()?;
                let opened = folder.open_file(id, RESULTS).map_err(|error| store_failed(&error))?;
                add_ended(document(opened)?.file, &mut add)?;
            }
        }
        write(b"]}")?;
        let mut file = out.into_inner().map_err(|error| unwritable(error.error()))?;
        let bytes = file.stream_position().map_err(|error| unwritable(&error))?;
        file.seek(SeekFrom::Start(0)).map_err(|error| unwritable(&error))?;
        Ok(CaseRunDocument { file, bytes })
    }

    /// Follows the events of a run.
    pub fn follow(&self, owner: &str, id: &str) -> Result<CaseRunEvents, CaseRunsError> {
        if let Some(live) = self.live(owner, id)? {
            let opened = live.run.open_file(EVENTS).map_err(|error| store_failed(&error))?;
            let file = document(opened)?.file;
            return Ok(live.events().follow(file));
        }
        let opened = self.folder()?.open_file(id, EVENTS).map_err(|error| store_failed(&error))?;
        let CaseRunDocument { file, bytes } = document(opened)?;
        Ok(EventLog::ended(file, bytes))
    }
}

type AddLine<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), CaseRunsError>;

fn add_live(live: &LiveRun, add: AddLine<'_>) -> Result<(), CaseRunsError> {
    for cell in &live.run.manifest().cells {
        let result = live.run.live_result(cell).map_err(|error| store_failed(&error))?;
        let line = result.to_line().map_err(|error| CaseRunsError::Store(error.to_string()))?;
        add(&line)?;
    }
    Ok(())
}

fn add_ended(results: File, add: AddLine<'_>) -> Result<(), CaseRunsError> {
    let mut lines = BufReader::with_capacity(BUFFER_BYTES, results);
    let mut line = Vec::new();
    // Each line is a result, which has a limit.
    while lines.read_until(b'\n', &mut line).map_err(|error| unwritable(&error))? > 0 {
        add(&line)?;
        line.clear();
    }
    Ok(())
}

fn document(opened: Option<(File, u64)>) -> Result<CaseRunDocument, CaseRunsError> {
    let (file, bytes) =
        opened.ok_or_else(|| CaseRunsError::Store("a file is missing".to_owned()))?;
    Ok(CaseRunDocument { file, bytes })
}

fn unwritable(error: &io::Error) -> CaseRunsError {
    log::error!(reason = error.to_string(); "the results of a run of a Case cannot be copied");
    CaseRunsError::Store(format!("results: {}", error.kind()))
}
