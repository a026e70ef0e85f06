//! Tests of the formats and of their protection against forged lines.

use std::time::{Duration, UNIX_EPOCH};

use log::Level;
use log::kv::{Source, ToValue};
use proptest::prelude::*;

use super::*;

type Fields<'a> = &'a [(&'static str, &'a dyn ToValue)];

/// Fields in the given order.
struct Pairs<'a>(Fields<'a>);

impl Source for Pairs<'_> {
    fn visit<'kvs>(&'kvs self, visitor: &mut dyn VisitSource<'kvs>) -> Result<(), Error> {
        self.0
            .iter()
            .try_for_each(|(key, value)| visitor.visit_pair(Key::from(*key), value.to_value()))
    }
}

/// Formats the message and the fields as text and as JSON.
fn both(message: &str, fields: Fields<'_>) -> [String; 2] {
    let pairs = Pairs(fields);
    let mut lines = [Vec::new(), Vec::new()];
    let args = format_args!("{message}");
    let record =
        Record::builder().level(Level::Info).target("t").args(args).key_values(&pairs).build();
    let [text, json] = &mut lines;
    write_text(text, &record).unwrap();
    write_json(json, &record, UNIX_EPOCH + Duration::from_millis(1)).unwrap();
    lines.map(|line| String::from_utf8(line).unwrap())
}

#[test]
fn a_line_has_level_target_message_request_id_and_fields() {
    let id = RequestId::parse(b"abc-1").unwrap();
    let fields: Fields<'_> = &[
        ("slug", &"python"),
        ("exit_code", &None::<u8>),
        ("code", &Some(3_u8)),
        ("ms", &1.25),
        ("standby", &true),
        ("signed", &-1_i64),
        ("reason", &"no such \"thing\""),
    ];
    let [text, json] = id.during(|| both("run ended", fields));
    assert_eq!(
        text,
        "[INFO  t] run ended request_id=abc-1 slug=python exit_code=- code=3 ms=1.25 \
         standby=true signed=-1 reason=\"no such \\\"thing\\\"\"\n"
    );
    assert_eq!(
        json,
        "{\"time\":\"1970-01-01T00:00:00.001Z\",\"level\":\"INFO\",\"target\":\"t\",\
         \"message\":\"run ended\",\"request_id\":\"abc-1\",\"slug\":\"python\",\
         \"exit_code\":null,\"code\":3,\"ms\":1.25,\"standby\":true,\"signed\":-1,\
         \"reason\":\"no such \\\"thing\\\"\"}\n"
    );
    let [text, json] = both("draining", &[]);
    assert_eq!(text, "[INFO  t] draining\n");
    assert!(!json.contains("request_id"), "{json}");
}

#[test]
fn no_character_can_forge_a_line_or_a_field() {
    for evil in
        ["\n", "\r\n[INFO  t] forged", "\x1b[2K", "\u{9b}2K", "\u{2028}", "\u{202e}", "\0", "\x7f"]
    {
        let [text, json] = both(evil, &[("path", &evil)]);
        for line in [&text, &json] {
            assert_eq!(line.matches('\n').count(), 1, "{evil:?}: {line:?}");
            assert!(!line.trim_end_matches('\n').chars().any(is_forging), "{evil:?}: {line:?}");
        }
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&parsed["message"], &parsed["path"]), (&evil.into(), &evil.into()));
    }
    let [text, _] =
        both("m", &[("path", &"/x exit_code=0"), ("a", &"-"), ("b", &""), ("c", &"\\n")]);
    assert_eq!(text, "[INFO  t] m path=\"/x exit_code=0\" a=\"-\" b=\"\" c=\"\\\\n\"\n");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_text_is_one_line(message in any::<String>(), value in any::<String>()) {
        let [text, json] = both(&message, &[("value", &value)]);
        prop_assert_eq!(text.matches('\n').count(), 1);
        prop_assert_eq!(json.matches('\n').count(), 1);
        let parsed: serde_json::Value = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&parsed["message"], &serde_json::Value::from(message));
        prop_assert_eq!(&parsed["value"], &serde_json::Value::from(value));
    }
}
