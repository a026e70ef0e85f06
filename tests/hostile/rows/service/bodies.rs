//! Malformed and oversized bodies.

use cofferdam_test_server::client::{Answer, post};
use serde_json::json;

use crate::Unexercised;
use crate::target::Target;

/// More than any service with this contract accepts by default.
const OVERSIZE: usize = (1 << 20) + 1;
const DEEP: usize = 10_000;

pub fn malformed(target: &Target) -> Result<(), Unexercised> {
    let ask = |body: &[u8]| target.ask(post("", body));
    let slug = json!(target.slug()).to_string();
    for body in faulty(&slug) {
        let answer = ask(&body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        assert_eq!(answer.status, 400, "{shown}: {answer:?}");
        assert_names_a_fault(&answer);
    }
    for field in ["lang_slug", "solution_text", "asserts", "timeout"] {
        for value in ["1", "1e999", "true", "[]", "{}", "[\"x\"]"] {
            let mut members = vec![("lang_slug", slug.as_str()), ("solution_text", "\"\"")];
            members.retain(|(name, _)| *name != field);
            members.push((field, value));
            let members = members.iter().map(|(name, value)| format!("\"{name}\":{value}"));
            let body = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
            let answer = ask(body.as_bytes());
            assert_eq!(answer.status, 400, "{body}: {answer:?}");
            assert_names_a_fault(&answer);
        }
    }
    too_large(target);
    strange_but_valid(target, &slug);
    Ok(())
}

/// Bodies that no reader may accept as a request.
fn faulty(slug: &str) -> Vec<Vec<u8>> {
    let valid = format!(r#""lang_slug":{slug},"solution_text":"""#);
    let object = |inside: &str| format!("{{{inside}}}").into_bytes();
    let deep = |open: &str, close: &str| open.repeat(DEEP) + &close.repeat(DEEP);
    let mut bodies = vec![
        Vec::new(),
        b"null".to_vec(),
        b"[]".to_vec(),
        b"\"\"".to_vec(),
        b"{".to_vec(),
        b"{\"a\":".to_vec(),
        format!("\u{feff}{{{valid}}}").into_bytes(),
        format!("{{{valid}}}{{}}").into_bytes(),
        format!("{{{valid}}}\0").into_bytes(),
        format!("{{{valid},}}").into_bytes(),
        format!("{{{valid}}} // a comment").into_bytes(),
        object(&valid.replace('"', "'")),
        deep("[", "]").into_bytes(),
        deep("{\"a\":", "}").into_bytes(),
        object(&format!("{valid},\"timeout\":{}", deep("[", "]"))),
        // The same key twice, also when an escape hides it.
        object(&format!("{valid},{valid}")),
        object(&format!(r#"{valid},"solution_text":"1""#)),
        object(&format!(r#"{valid},"solution\u005ftext":"1""#)),
        object(&format!(r#"{valid},"timeout":"1s","timeout":"2s""#)),
        object(&format!(r#""lang_slug":{slug},"solution_text":"\ud800""#)),
        object(&format!(r#""lang_slug":{slug},"solution_text":"\udc00\ud800""#)),
        object(&format!("\"lang_slug\":{slug},\"solution_text\":\"\0\"")),
        object(&format!("\"lang_slug\":{slug},\"solution_text\":\"\n\"")),
        object(r#""lang_slug":"\u0000","solution_text":"""#),
        object(&format!(r#""lang_slug":{slug},"solution_text":null"#)),
        object(r#""solution_text":"""#),
    ];
    let invalid = |bytes: &[u8]| {
        let start = format!("{{\"lang_slug\":{slug},\"solution_text\":\"");
        [start.as_bytes(), bytes, b"\"}"].concat()
    };
    bodies.extend([
        invalid(b"\xff"),
        invalid(b"\xc0\xaf"),
        invalid(b"\xed\xa0\x80"),
        invalid(b"\xf5\x80\x80\x80"),
    ]);
    bodies
}

#[track_caller]
fn assert_names_a_fault(answer: &Answer) {
    let body: serde_json::Value = serde_json::from_str(&answer.body).unwrap();
    assert!(body["error"].as_str().is_some_and(|words| !words.is_empty()), "{answer:?}");
}

fn too_large(target: &Target) {
    let refused = r#"{"error":"payload too large"}"#;
    let large = vec![b'x'; OVERSIZE];
    target.ask(post("", &large)).assert_json(413, refused);
    let mut client = target.connect();
    client.send("POST /run HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n");
    // In small chunks, until the server closes the connection.
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
    for _ in 0..=OVERSIZE / 0x1000 {
        if !client.try_send(&chunk) {
            break;
        }
    }
    client.answer().assert_json(413, refused);
}

/// Odd but valid parts of a body are ignored.
fn strange_but_valid(target: &Target, slug: &str) {
    let source = json!("def solution():\n    return 'odd'\n").to_string();
    let asserts = json!(r#"{"arguments":[[]],"expected":[null]}"#).to_string();
    let valid = format!(r#""lang_slug":{slug},"solution_text":{source},"asserts":{asserts}"#);
    for extra in [
        r#""x":123456789012345678901234567890123456789"#.to_owned(),
        format!(r#""x":0.{}1"#, "0".repeat(10_000)),
        format!(r#""{}":1"#, "k".repeat(100_000)),
        r#""__proto__":{"timeout":"1h"}"#.to_owned(),
        r#""timeout":null,"checker_text":null"#.to_owned(),
    ] {
        let answer = target.ask(post("", format!("{{{valid},{extra}}}")));
        assert!(answer.status == 200 && answer.body.contains("odd"), "{answer:?}");
    }
    let zero = format!(r#"{{"lang_slug":{slug},"solution_text":"\u0000","asserts":{asserts}}}"#);
    assert_eq!(target.ask(post("", zero)).status, 200);
}
