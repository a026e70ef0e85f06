//! Truncates a result to a size, and notes in it what is missing.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;

use cofferdam_core::job::{RunJobResult, StreamRecord, TextEncoding};

/// The most bytes that one step adds to `not_recorded`.
const NOTE_BYTES_MAX: u64 = 192;
/// The size that a text other than a stream is truncated to, bytes as JSON.
const TEXT_BYTES_KEPT: u64 = 512;
/// The size that the details of an error are truncated to, bytes as JSON.
const DETAILS_BYTES_KEPT: u64 = 4096;

/// The size down to which a trace is truncated, bytes as JSON.
const TRACE_BYTES_KEPT: u64 = 4096;

/// Truncates one field by `over` bytes, and returns notes on what is missing.
type TruncateStep = fn(&mut RunJobResult, over: u64) -> Vec<String>;

/// The steps, in order. Fields that can be read elsewhere in the store come first; the artifacts,
/// which cannot be found without their list, come last.
const TRUNCATE_STEPS: [TruncateStep; 11] = [
    cut_streams,
    cut_error,
    cut_argv_texts,
    |result, over| shortened("artifacts_omitted", &mut result.artifacts_omitted, over),
    |result, over| shortened("egress", &mut result.egress, over),
    |result, over| shortened("command.argv", &mut result.command.argv, over),
    |result, over| shortened("policy.reasons", &mut result.policy.reasons, over),
    cut_controls,
    cut_paths,
    cut_trace,
    |result, over| shortened("artifacts", &mut result.artifacts, over),
];

/// Truncates `result` to `record_bytes_max` bytes of JSON, which is 64 KiB or more. `not_recorded`
/// names each truncated field with how much is missing: bytes of a text, or items of a list. Texts
/// keep whole characters, base64 keeps whole groups. Lists are shortened only if truncating texts is
/// not enough.
pub fn truncate(result: &mut RunJobResult, record_bytes_max: u64) {
    for cut in TRUNCATE_STEPS {
        let size = json_bytes(result);
        if size <= record_bytes_max {
            return;
        }
        let over = (size - record_bytes_max).saturating_add(NOTE_BYTES_MAX);
        let notes = cut(result, over);
        result.not_recorded.extend(notes);
    }
}

/// The size of a value as JSON, bytes.
pub(super) fn json_bytes(value: &impl Serialize) -> u64 {
    let mut counter = JsonSize(0);
    // A value that is not JSON counts as empty.
    let _ = serde_json::to_writer(&mut counter, value);
    counter.0
}

struct JsonSize(u64);

impl Write for JsonSize {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both outputs share the room. One that needs less than half leaves the rest to the other.
fn cut_streams(result: &mut RunJobResult, over: u64) -> Vec<String> {
    let (out, err) = (escaped_bytes(&result.stdout.text), escaped_bytes(&result.stderr.text));
    let room = (out + err).saturating_sub(over);
    let half = room / 2;
    let out_room = out.min(half.max(room.saturating_sub(err)));
    let mut notes = Vec::new();
    for (name, stream, room) in [
        ("stdout.text", &mut result.stdout, out_room),
        ("stderr.text", &mut result.stderr, room.saturating_sub(out_room)),
    ] {
        notes.extend(cut_stream(name, stream, room));
    }
    notes
}

fn cut_stream(name: &str, stream: &mut StreamRecord, room_bytes: u64) -> Option<String> {
    let mut end = prefix_within(&stream.text, room_bytes);
    if stream.encoding == TextEncoding::Base64 {
        end -= end % 4;
    }
    let missing = stream.text.len() - end;
    if missing == 0 {
        return None;
    }
    stream.text.truncate(end);
    stream.truncated = true;
    Some(format!("{name}: {missing} bytes"))
}

fn cut_error(result: &mut RunJobResult, _over: u64) -> Vec<String> {
    let Some(error) = &mut result.error else { return Vec::new() };
    let mut notes = Vec::new();
    let missing = cut_text(&mut error.message);
    if missing > 0 {
        notes.push(format!("error.message: {missing} bytes"));
    }
    let missing: usize = error.details.values_mut().map(cut_value).sum();
    if missing > 0 {
        notes.push(format!("error.details: {missing} bytes"));
    }
    let over = json_bytes(&error.details).saturating_sub(DETAILS_BYTES_KEPT);
    let mut details: BTreeMap<_, _> = std::mem::take(&mut error.details).into_iter().collect();
    notes.extend(without_largest("error.details", &mut details, over));
    error.details = details.into_iter().collect();
    notes
}

/// Truncates every text in a value. Returns the bytes removed.
fn cut_value(value: &mut Value) -> usize {
    match value {
        Value::String(text) => cut_text(text),
        Value::Array(items) => items.iter_mut().map(cut_value).sum(),
        Value::Object(items) => items.values_mut().map(cut_value).sum(),
        _ => 0,
    }
}

fn cut_argv_texts(result: &mut RunJobResult, _over: u64) -> Vec<String> {
    let missing: usize = result.command.argv.iter_mut().map(cut_text).sum();
    if missing == 0 { Vec::new() } else { vec![format!("command.argv: {missing} bytes")] }
}

fn cut_controls(result: &mut RunJobResult, over: u64) -> Vec<String> {
    let before = json_bytes(&result.not_enforced);
    let mut notes = shortened("not_enforced", &mut result.not_enforced, over);
    let over = over.saturating_sub(before - json_bytes(&result.not_enforced));
    notes.extend(without_largest("enforced", &mut result.enforced, over));
    notes
}

/// A caller finds its job by the trace, so part of it stays.
fn cut_trace(result: &mut RunJobResult, over: u64) -> Vec<String> {
    let most = json_bytes(&result.trace).saturating_sub(TRACE_BYTES_KEPT);
    without_largest("trace", &mut result.trace, over.min(most))
}

fn cut_paths(result: &mut RunJobResult, _over: u64) -> Vec<String> {
    let executable = result.command.executable.as_mut().map(|executable| &mut executable.path);
    let texts = [
        ("command.cwd", Some(&mut result.command.cwd)),
        ("command.executable.path", executable),
        ("policy.version", Some(&mut result.policy.version)),
    ];
    let cut = texts.into_iter().filter_map(|(name, text)| Some((name, cut_text(text?))));
    cut.filter(|(_, missing)| *missing > 0)
        .map(|(name, missing)| format!("{name}: {missing} bytes"))
        .collect()
}

/// Truncates one text. Returns the bytes removed.
fn cut_text(text: &mut String) -> usize {
    let end = prefix_within(text, TEXT_BYTES_KEPT);
    let missing = text.len() - end;
    text.truncate(end);
    missing
}

/// Removes items from the end until `over` bytes are free.
fn shortened<T: Serialize>(name: &str, items: &mut Vec<T>, over: u64) -> Vec<String> {
    let (mut freed, mut missing) = (0, 0_u64);
    while freed < over
        && let Some(last) = items.pop()
    {
        // One more byte for the comma before it.
        freed += json_bytes(&last) + u64::from(!items.is_empty());
        missing += 1;
    }
    if missing == 0 { Vec::new() } else { vec![format!("{name}: {missing}")] }
}

/// Removes the largest items until `over` bytes are free.
fn without_largest(name: &str, items: &mut BTreeMap<String, Value>, over: u64) -> Vec<String> {
    let mut sizes: Vec<(u64, String)> = items
        .iter()
        .map(|(key, value)| (json_bytes(key) + json_bytes(value) + 1, key.clone()))
        .collect();
    sizes.sort_unstable();
    let (mut freed, mut missing) = (0, 0_u64);
    while freed < over
        && let Some((bytes, key)) = sizes.pop()
    {
        items.remove(&key);
        freed += bytes;
        missing += 1;
    }
    if missing == 0 { Vec::new() } else { vec![format!("{name}: {missing}")] }
}

/// The end of the longest prefix of `text` that takes at most `bytes_max` bytes in JSON.
fn prefix_within(text: &str, bytes_max: u64) -> usize {
    let mut bytes = 0;
    for (at, character) in text.char_indices() {
        bytes += escaped_character_bytes(character);
        if bytes > bytes_max {
            return at;
        }
    }
    text.len()
}

/// The size of `text` in JSON, bytes.
pub(super) fn escaped_bytes(text: &str) -> u64 {
    text.chars().map(escaped_character_bytes).sum()
}

fn escaped_character_bytes(character: char) -> u64 {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        '\0'..='\u{1f}' => 6,
        '\u{20}'..='\u{7f}' => 1,
        '\u{80}'..='\u{7ff}' => 2,
        '\u{800}'..='\u{ffff}' => 3,
        _ => 4,
    }
}
