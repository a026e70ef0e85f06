//! Log lines as text and as JSON; in neither can what is logged look like another line.

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

/// Has log lines of `level` and above written to stderr, unless `RUST_LOG`
/// says otherwise, in the form `LOG_FORMAT` asks for. Of a word that is no
/// form the configuration complains.
pub fn init(level: &str) {
    let format = asked_format();
    if format == LogFormat::Json {
        // The usual words of a panic are no JSON.
        panic::set_hook(Box::new(|panic| log::error!("{panic}")));
    }
    // Fails only where a caller of ours has a logger already.
    let _ = builder(level, format).try_init();
}

/// As [`init`] for a service: nothing that is logged waits for the reader of stderr, the words
/// of a panic included.
pub fn init_queued(level: &str) -> io::Result<LogQueue> {
    let format = asked_format();
    let told = Box::new(move |count| dropped_line(format, count));
    let queue = LogQueue::start(io::stderr(), told)?;
    let at_panic = queue.clone();
    panic::set_hook(Box::new(move |panic| {
        log::error!("{panic}");
        // Where a panic is the process's end, this is the last chance.
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

/// The line in the place of `count` others.
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
    // Into memory; nothing in it fails.
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

/// `[LEVEL target] message`, the request's name and the fields behind it.
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

/// A JSON object in a line of its own: `time`, `level`, `target`, `message`, the
/// request's name where there is one, and the fields.
fn write_json(out: &mut impl io::Write, record: &Record<'_>, now: SystemTime) -> io::Result<()> {
    let mut line = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut line, EscapedJson);
    JsonLine { record, now }.serialize(&mut serializer)?;
    line.push(b'\n');
    out.write_all(&line)
}

/// Whether `character` could init another line, or have a terminal show
/// something else than is there.
fn is_forging(character: char) -> bool {
    let is_line_end = matches!(character, '\u{2028}' | '\u{2029}');
    let turns_text = matches!(character,
        '\u{061C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    character.is_control() || is_line_end || turns_text
}

/// Text with what could forge a line written out.
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

/// A field's value, as both formats tell it.
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
        // A visitor that refuses nothing has nothing to complain of.
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

/// ` key=value` for each field, quoted where it is more than a word.
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
        written.map_err(|_| Error::msg("a field that is no JSON"))
    }
}

/// Compact JSON that escapes more than JSON asks for.
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
            // Every one of them is below U+10000.
            write!(writer, "{before}\\u{:04x}", u32::from(character))?;
            rest = behind.get(character.len_utf8()..).unwrap_or_default();
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests;
