//! `events.jsonl`: what happened in an evaluation, one event a line.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::watch;

use super::records::EvaluationRecords;
use crate::evaluation::result::EvaluationStep;
use crate::evaluation::service::api::{EvaluationEvents, EventsProgress};
use crate::store::StoreError;

/// Bytes of a file of events beyond which `output` events are dropped.
const OUTPUT_EVENTS_BYTES_MAX: u64 = 64 << 20;
/// What replaces them.
const DROPPED: &str = "... [output events are dropped beyond 67108864 bytes]";

#[derive(Serialize)]
struct EventLine<'a, T> {
    id: u64,
    event: &'a str,
    data: &'a T,
}

/// Writes the events of one evaluation.
#[derive(Debug)]
pub struct EventLog {
    eval_id: String,
    /// Opened with the first event, so that those that wait hold no descriptor.
    file: Option<File>,
    last_id: u64,
    step: Option<EvaluationStep>,
    drops_output: bool,
    output_bytes_max: u64,
    progress: Option<watch::Sender<EventsProgress>>,
    /// The bytes with the last event, until followers are told.
    end_bytes: Option<u64>,
}

impl EventLog {
    /// For an evaluation without events so far.
    pub fn new(eval_id: &str) -> Self {
        Self {
            eval_id: eval_id.to_owned(),
            file: None,
            last_id: 0,
            step: None,
            drops_output: false,
            output_bytes_max: OUTPUT_EVENTS_BYTES_MAX,
            progress: Some(watch::channel(EventsProgress::default()).0),
            end_bytes: None,
        }
    }

    /// For an evaluation that has ended.
    pub fn over(eval_id: &str) -> Self {
        Self { progress: None, ..Self::new(eval_id) }
    }

    /// Goes on after the whole lines of what a dead process wrote. An event of the end is there at most
    /// once.
    ///
    /// # Errors
    /// The file cannot be read or cut.
    pub fn resume(records: &EvaluationRecords, eval_id: &str) -> Result<Self, StoreError> {
        let mut log = Self::new(eval_id);
        let mut file = records.open_events_to_repair(eval_id)?;
        let failed = |error: &std::io::Error| records.events_error(eval_id, error);
        let WholeLines { bytes, lines, ended, step } =
            whole_lines(&mut file).map_err(|error| failed(&error))?;
        file.set_len(bytes).map_err(|error| failed(&error))?;
        file.seek(SeekFrom::End(0)).map_err(|error| failed(&error))?;
        (log.last_id, log.step) = (lines, step);
        log.file = Some(file);
        log.announce(bytes, ended);
        Ok(log)
    }

    /// The last step that a dead process began.
    pub fn step(&self) -> Option<EvaluationStep> {
        self.step
    }

    /// Whether the last event was written.
    pub fn has_ended(&self) -> bool {
        self.end_bytes.is_some()
            || self.progress.as_ref().is_none_or(|progress| progress.borrow().ended)
    }

    /// Follows it.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn follow(&self, records: &EvaluationRecords) -> Result<EvaluationEvents, StoreError> {
        let (file, bytes) = records.open_events(&self.eval_id)?;
        let progress = match &self.progress {
            Some(progress) => progress.subscribe(),
            None => watch::channel(EventsProgress { bytes, ended: true }).1,
        };
        Ok(EvaluationEvents { file, progress })
    }

    /// Appends what a program wrote, unless that is too much.
    pub fn output(
        &mut self,
        records: &EvaluationRecords,
        step: EvaluationStep,
        name: Option<&str>,
        text: &str,
    ) {
        if self.drops_output {
            return;
        }
        if self.bytes().saturating_add(text.len() as u64) > self.output_bytes_max {
            self.drops_output = true;
            self.append(records, "output", &json!({"step": step, "name": name, "text": DROPPED}));
            return;
        }
        self.append(records, "output", &json!({"step": step, "name": name, "text": text}));
    }

    /// Appends an event. If that fails, the event is lost and the failure is logged.
    pub fn append(&mut self, records: &EvaluationRecords, event: &str, data: &impl Serialize) {
        let line = serde_json::to_vec(&EventLine { id: self.last_id + 1, event, data });
        let written = line.map_err(|error| records.events_error(&self.eval_id, &error.into()));
        let written = written.and_then(|mut line| {
            line.push(b'\n');
            self.write_line(records, &line, false)
        });
        if let Err(error) = written {
            log::error!(eval = self.eval_id.as_str(), reason = error.to_string(); "event lost");
        }
    }

    /// Appends the last event; returns when it is on the disk. Followers get it with [`EventLog::close`].
    ///
    /// # Errors
    /// It cannot be written. It may be tried again.
    pub fn end(
        &mut self,
        records: &EvaluationRecords,
        result_json: &[u8],
    ) -> Result<(), StoreError> {
        if self.has_ended() {
            return Ok(());
        }
        let head = format!("{{\"id\":{},\"event\":\"result\",\"data\":", self.last_id + 1);
        self.write_line(records, &[head.as_bytes(), result_json, b"}\n"].concat(), true)
    }

    /// Tells followers that nothing will come any more. Who has seen the last event finds the end everywhere, so
    /// this comes after the state of the service has changed.
    pub fn close(&mut self) {
        if let Some(bytes) = self.end_bytes.take() {
            self.announce(bytes, true);
        }
        self.progress = None;
        self.file = None;
    }

    fn write_line(
        &mut self,
        records: &EvaluationRecords,
        line: &[u8],
        ends: bool,
    ) -> Result<(), StoreError> {
        let bytes = self.bytes();
        if self.file.is_none() {
            self.file = Some(records.append_events(&self.eval_id)?);
        }
        let Some(file) = self.file.as_mut() else { return Ok(()) };
        let written =
            file.write_all(line).and_then(|()| if ends { file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // Half a line must not stay; followers read up to `bytes` only.
            let _ = file.set_len(bytes);
            return Err(records.events_error(&self.eval_id, &error));
        }
        self.last_id += 1;
        let bytes = bytes + line.len() as u64;
        if ends {
            self.end_bytes = Some(bytes);
        } else {
            self.announce(bytes, false);
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.progress.as_ref().map_or(0, |progress| progress.borrow().bytes)
    }

    fn announce(&self, bytes: u64, ended: bool) {
        if let Some(progress) = &self.progress {
            progress.send_replace(EventsProgress { bytes, ended });
        }
    }

    #[cfg(test)]
    pub fn with_output_max(mut self, bytes: u64) -> Self {
        self.output_bytes_max = bytes;
        self
    }
}

/// What a file of events holds.
#[derive(Default)]
struct WholeLines {
    bytes: u64,
    /// Lines with the ids 1, 2, 3….
    lines: u64,
    /// Whether the last is that of the end.
    ended: bool,
    /// The last step.
    step: Option<EvaluationStep>,
}

#[derive(Deserialize)]
struct StepLine {
    data: StepData,
}

#[derive(Deserialize)]
struct StepData {
    step: EvaluationStep,
}

fn whole_lines(file: &mut File) -> std::io::Result<WholeLines> {
    let mut found = WholeLines::default();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    while !found.ended {
        line.clear();
        let count = reader.by_ref().read_until(b'\n', &mut line)?;
        let prefix = format!("{{\"id\":{},\"event\":\"", found.lines + 1);
        let Some(rest) = line.strip_prefix(prefix.as_bytes()) else { break };
        if line.last() != Some(&b'\n') {
            break;
        }
        if rest.starts_with(b"step\"") {
            let step = serde_json::from_slice(&line).ok();
            found.step = step.map(|line: StepLine| line.data.step).or(found.step);
        }
        found.ended = rest.starts_with(b"result\"");
        found.bytes += count as u64;
        found.lines += 1;
    }
    Ok(found)
}
