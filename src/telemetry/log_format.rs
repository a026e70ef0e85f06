//! Formats log lines as text and as JSON. In neither can logged data imitate another line.

use std::fmt::{self, Write as _};
use std::io;
use std::panic;
use std::time::SystemTime;

use log::Record;
use log::kv::{Error, Key, Value, VisitSource, VisitValue};
use serde::ser::{Error as _, Serialize, SerializeMap, Serializer};
use serde_json::ser::Formatter;

use super::log_queue::LogQueue;
use crate::config::LogFormat;
use cofferdam_core::sync::request_id::RequestId;
use cofferdam_core::values::utc;

/// Logs `level` and above to stderr, unless `RUST_LOG` says otherwise, in the format of
/// `LOG_FORMAT`. The configuration reports an invalid format.
pub fn init(level: &str) {
    let format = asked_format();
    if format == LogFormat::Json {
        // The default message of a panic is not JSON.
        panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    }
    // Fails only if the embedding program has set a logger.
    let _ = builder(level, format).try_init();
}

/// As [`init`], for a service: logging does not wait for the reader of stderr, not even in a panic.
pub fn init_queued(level: &str) -> io::Result<LogQueue> {
    let format = asked_format();
    let drop_message = Box::new(move |count| dropped_line(format, count));
    let queue = LogQueue::start(io::stderr(), drop_message)?;
    let at_panic = queue.clone();
    panic::set_hook(Box::new(move |panic| {
        log::error!("{panic}");
        // If the panic ends the process, this is the last chance to write it.
        at_panic.flush();
    }));
    let target = env_logger::Target::Pipe(Box::new(queue.clone()));
    let _ = builder(level, format).target(target).try_init();
    Ok(queue)
}

fn asked_format() -> LogFormat {
    let asked = std::env::var(LogFormat::VARIABLE);
    asked.ok().and_then(|text| LogFormat::parse(&text)).unwrap_or_default()
}

/// Returns the line that reports `count` dropped lines.
fn dropped_line(format: LogFormat, count: u64) -> Vec<u8> {
    let fields = [("count", count)];
    let args = format_args!("log lines dropped: stderr was not read");
    let level = log::Level::Warn;
    let record = Record::builder()
        .level(level)
        .target(module_path!())
        .args(args)
        .key_values(&fields)
        .build();
    let mut line = Vec::new();
    let written = match format {
        LogFormat::Text => write_text(&mut line, &record),
        LogFormat::Json => write_json(&mut line, &record, SystemTime::now()),
    };
    // Writing to memory does not fail.
    written.map(|()| line).unwrap_or_default()
}

fn builder(level: &str, format: LogFormat) -> env_logger::Builder {
    let filter = env_logger::Env::default().default_filter_or(level);
    let mut builder = env_logger::Builder::from_env(filter);
    builder.format(move |out, record| match format {
        LogFormat::Text => write_text(out, record),
        LogFormat::Json => write_json(out, record, SystemTime::now()),
    });
    builder
}

/// Writes `[LEVEL target] message`, then the request id and the fields.
fn write_text(out: &mut impl io::Write, record: &Record<'_>) -> io::Result<()> {
    let mut line = String::new();
    let written = text_line(&mut line, record);
    written.map_err(|_| io::ErrorKind::InvalidData)?;
    out.write_all(line.as_bytes())
}

fn text_line(line: &mut String, record: &Record<'_>) -> fmt::Result {
    write!(line, "[{:<5} {}] ", record.level(), record.target())?;
    write!(EscapedText(line), "{}", record.args())?;
    if let Some(id) = RequestId::current() {
        write!(line, " request_id={id}")?;
    }
    record.key_values().visit(&mut TextFields(line)).map_err(|_| fmt::Error)?;
    line.write_char('\n')
}

/// Writes one JSON object per line: `time`, `level`, `target`, `message`, `request_id` if there is
/// one, and the fields.
fn write_json(out: &mut impl io::Write, record: &Record<'_>, now: SystemTime) -> io::Result<()> {
    let mut line = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut line, EscapedJson);
    JsonLine { record, now }.serialize(&mut serializer)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Returns whether `character` could start another line or change what a terminal displays.
fn is_forging(character: char) -> bool {
    let is_line_end = matches!(character, '\u{2028}' | '\u{2029}');
    let turns_text = matches!(character,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    character.is_control() || is_line_end || turns_text
}

/// Text whose forging characters are escaped.
struct EscapedText<'a>(&'a mut String);

impl fmt::Write for EscapedText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            match character {
                character if is_forging(character) => {
                    write!(self.0, "{}", character.escape_default())?;
                }
                character => self.0.push(character),
            }
        }
        Ok(())
    }
}

/// The value of a field, in both formats.
#[derive(Debug, serde::Serialize)]
#[serde(untagged)]
enum FieldValue {
    Null,
    Bool(bool),
    Unsigned(u64),
    Signed(i64),
    Float(f64),
    Text(String),
}

impl FieldValue {
    fn of(value: &Value<'_>) -> Self {
        let mut taken = FieldValueVisitor(Self::Null);
        // This visitor returns no error.
        let _ = value.visit(&mut taken);
        taken.0
    }
}

struct FieldValueVisitor(FieldValue);

impl<'v> VisitValue<'v> for FieldValueVisitor {
    fn visit_any(&mut self, value: Value<'_>) -> Result<(), Error> {
        self.0 = FieldValue::Text(value.to_string());
        Ok(())
    }

    fn visit_null(&mut self) -> Result<(), Error> {
        self.0 = FieldValue::Null;
        Ok(())
    }

    fn visit_bool(&mut self, value: bool) -> Result<(), Error> {
        self.0 = FieldValue::Bool(value);
        Ok(())
    }

    fn visit_u64(&mut self, value: u64) -> Result<(), Error> {
        self.0 = FieldValue::Unsigned(value);
        Ok(())
    }

    fn visit_i64(&mut self, value: i64) -> Result<(), Error> {
        self.0 = FieldValue::Signed(value);
        Ok(())
    }

    fn visit_f64(&mut self, value: f64) -> Result<(), Error> {
        self.0 = FieldValue::Float(value);
        Ok(())
    }
}

/// Writes ` key=value` for each field, quoted if the value is more than a word.
struct TextFields<'a>(&'a mut String);

impl<'kvs> VisitSource<'kvs> for TextFields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let line = &mut *self.0;
        let written = match FieldValue::of(&value) {
            FieldValue::Null => write!(line, " {key}=-"),
            FieldValue::Bool(value) => write!(line, " {key}={value}"),
            FieldValue::Unsigned(value) => write!(line, " {key}={value}"),
            FieldValue::Signed(value) => write!(line, " {key}={value}"),
            FieldValue::Float(value) => write!(line, " {key}={value}"),
            FieldValue::Text(text) if is_word(&text) => write!(line, " {key}={text}"),
            FieldValue::Text(text) => {
                let text = text.replace('\\', "\\\\").replace('"', "\\\"");
                write!(line, " {key}=\"")
                    .and_then(|()| write!(EscapedText(line), "{text}"))
                    .and_then(|()| line.write_char('"'))
            }
        };
        Ok(written?)
    }
}

fn is_word(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b'=');
    !text.is_empty() && text != "-" && text.bytes().all(is_plain)
}

struct JsonLine<'a, 'r> {
    record: &'a Record<'r>,
    now: SystemTime,
}

impl Serialize for JsonLine<'_, '_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { record, now } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("time", &utc::rfc3339(*now))?;
        map.serialize_entry("level", record.level().as_str())?;
        map.serialize_entry("target", record.target())?;
        map.serialize_entry("message", record.args())?;
        if let Some(id) = RequestId::current() {
            map.serialize_entry("request_id", id.as_str())?;
        }
        let fields = record.key_values().visit(&mut JsonFields(&mut map));
        fields.map_err(S::Error::custom)?;
        map.end()
    }
}

struct JsonFields<'a, M>(&'a mut M);

impl<'kvs, M: SerializeMap> VisitSource<'kvs> for JsonFields<'_, M> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        let written = self.0.serialize_entry(key.as_str(), &FieldValue::of(&value));
        written.map_err(|_| Error::msg("a field that cannot be written as JSON"))
    }
}

/// Compact JSON that also escapes forging characters.
struct EscapedJson;

impl Formatter for EscapedJson {
    fn write_string_fragment<W: io::Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, character)) = rest.char_indices().find(|(_, c)| is_forging(*c)) {
            let (before, behind) = rest.split_at(at);
            // All of these characters are below U+10000.
            write!(writer, "{before}\\u{:04x}", u32::from(character))?;
            rest = behind.get(character.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests;
