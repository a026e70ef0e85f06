use cofferdam_core::SecretValue;
use proptest::prelude::*;

use super::*;
use crate::egress::secret::encodings::spellings;

fn search(secrets: &[&str]) -> Arc<SecretSearch> {
    let values: Vec<SecretValue> =
        secrets.iter().map(|text| SecretValue::new((*text).to_owned()).unwrap()).collect();
    Arc::new(SecretSearch::new(&values))
}

/// What passes if the answer comes in `chunks`.
fn passed(search: &Arc<SecretSearch>, chunks: &[&[u8]]) -> Vec<u8> {
    let mut stream = RedactStream::new(Arc::clone(search));
    let mut out = Vec::new();
    for chunk in chunks {
        out.extend_from_slice(&stream.push_bytes(Bytes::copy_from_slice(chunk)));
    }
    out.extend(stream.finish());
    out
}

/// The expected output, by the definition: every spelling in `text` is replaced, overlapping ones together.
fn expected(secrets: &[&str], text: &[u8]) -> Vec<u8> {
    let mut found = Vec::new();
    for spelling in secrets.iter().flat_map(|secret| spellings(secret)) {
        let windows = text.windows(spelling.len()).enumerate();
        let places = windows.filter(|(_, window)| *window == spelling.as_slice());
        found.extend(places.map(|(start, _)| (start, start + spelling.len())));
    }
    found.sort_unstable();
    let (mut out, mut from) = (Vec::new(), 0);
    for (start, end) in found {
        if start >= from {
            out.extend_from_slice(&text[from..start]);
            out.extend_from_slice(REDACTED.as_bytes());
        }
        from = from.max(end);
    }
    out.extend_from_slice(&text[from..]);
    out
}

#[test]
fn every_spelling_is_replaced() {
    let search = search(&["sk-a/b \"c\"\u{e9}"]);
    for (text, clean) in [
        ("x sk-a/b \"c\"\u{e9} y", "x [redacted] y"),
        ("{\"key\":\"sk-a/b \\\"c\\\"\\u00e9\"}", "{\"key\":\"[redacted]\"}"),
        ("key=sk-a%2Fb%20%22c%22%C3%A9&x", "key=[redacted]&x"),
        ("key=sk-a%2fb+%22c%22%c3%a9&x", "key=[redacted]&x"),
        ("sk-a/b \"c\"\u{e9}sk-a/b \"c\"\u{e9}", "[redacted][redacted]"),
        ("sk-a/b \"c\"e", "sk-a/b \"c\"e"),
        ("", ""),
    ] {
        assert_eq!(passed(&search, &[text.as_bytes()]), clean.as_bytes(), "{text}");
    }
}

#[test]
fn only_a_possible_beginning_is_held_back() {
    let search = search(&["secret-value-1"]);
    let mut stream = RedactStream::new(Arc::clone(&search));
    for (chunk, out, held) in [
        ("data: one\n\n", "data: one\n\n", 0),
        ("data: sec", "data: ", 3),
        ("ret-", "", 7),
        ("x\n\n", "secret-x\n\n", 0),
        ("s", "", 1),
        ("secret-value-", "s", 13),
        ("1 ", "[redacted] ", 0),
        ("secret-value-1", "[redacted]", 0),
        ("secr", "", 4),
    ] {
        assert_eq!(stream.push_bytes(chunk.into()), out, "{chunk:?}");
        assert_eq!(stream.held_bytes(), held, "{chunk:?}");
    }
    assert_eq!(stream.finish(), b"secr");
    assert_eq!(stream.found(), 2);
}

#[test]
fn an_answer_of_one_repeated_byte_is_never_collected() {
    let search = search(&["aaaaaaaa"]);
    let mut stream = RedactStream::new(search);
    let mut out = 0;
    for _ in 0..1000 {
        out += stream.push_bytes(Bytes::from_static(&[b'a'; 100])).len();
        assert!(stream.held_bytes() <= 8, "{}", stream.held_bytes());
    }
    assert_eq!(out + stream.finish().len(), REDACTED.len());
}

#[test]
fn a_whole_text_is_redacted_or_left_alone() {
    let search = search(&["secret-value-1", "other-value-22"]);
    let redacted = |text: &str| search.redact(text.as_bytes());
    assert_eq!(redacted("nothing"), None);
    assert_eq!(redacted("secret-value-2"), None);
    let both = redacted("other-value-22/secret-value-1").unwrap();
    assert_eq!(both, b"[redacted]/[redacted]");
    let mut headers = HeaderMap::new();
    headers.insert("x-echo", "Bearer secret-value-1".parse().unwrap());
    headers.append("x-echo", "fine".parse().unwrap());
    headers.insert("secret-value-1", "1".parse().unwrap());
    assert!(search.redact_headers(&mut headers));
    let values: Vec<_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    assert_eq!(values, [("x-echo", &b"Bearer [redacted]"[..]), ("x-echo", b"fine")]);
    assert!(!search.redact_headers(&mut headers));
}

proptest! {
    #[test]
    fn any_cut_into_chunks_gives_the_same_answer(
        secrets in proptest::collection::vec("[ab]{8,10}|[a-c/+\" ]{8,12}|sk-[a-z]{6,12}", 1..3),
        parts in proptest::collection::vec(("[ab]{0,6}|[a-c/+\" %\\\\]{0,20}", any::<usize>(), 0_usize..20), 0..8),
        cuts in proptest::collection::vec(0_usize..9, 0..80),
    ) {
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let all: Vec<Vec<u8>> = secrets.iter().flat_map(|secret| spellings(secret)).map(|one| one.to_vec()).collect();
        let mut text = Vec::new();
        for (noise, index, cut) in &parts {
            text.extend_from_slice(noise.as_bytes());
            // Most are whole, some end too early.
            let spelling = &all[index % all.len()];
            text.extend_from_slice(&spelling[..spelling.len() - cut.saturating_sub(12).min(spelling.len())]);
        }
        let (mut chunks, mut rest) = (Vec::new(), text.as_slice());
        for cut in &cuts {
            let (chunk, behind) = rest.split_at((*cut).min(rest.len()));
            chunks.push(chunk);
            rest = behind;
        }
        chunks.push(rest);
        let search = search(&secrets);
        let out = passed(&search, &chunks);
        prop_assert_eq!(&out, &passed(&search, &[&text]));
        prop_assert_eq!(&out, &expected(&secrets, &text));
    }

    #[test]
    fn a_secret_never_appears(
        secret in "[ -~]{8,16}", before in "[ -~]{0,8}", after in "[ -~]{0,8}", cut in 0_usize..40,
    ) {
        let text = format!("{before}{secret}{after}{secret}");
        let (one, two) = text.as_bytes().split_at(cut.min(text.len()));
        let out = passed(&search(&[&secret]), &[one, two]);
        let is_marker = "[redacted]".contains(&secret);
        prop_assert!(is_marker || !out.windows(secret.len()).any(|part| part == secret.as_bytes()));
    }
}
