//! Secrets are added on the way out, and do not come back.

use std::io::Write;

use serde_json::{Value, json};

use super::scene::{HostAuthority, RuledScene, SECRET, with_secret};
use crate::egress::proxy::tests::scene::{http_host, read_message};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

#[test]
fn a_secret_is_added_on_the_way_out_and_asks_for_an_answer_that_can_be_searched() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let mut scene = RuledScene::new(&authority, with_secret(port));
    let more = "accept-encoding: gzip\r\nrange: bytes=0-1\r\nif-none-match: x\r\n\
                authorization: mine\r\n";
    scene.get(port, "/added", more);
    let request = requests.recv().unwrap();
    assert!(request.contains(&format!("authorization: Bearer {SECRET}\r\n")), "{request}");
    assert!(request.contains("accept-encoding: identity\r\n"), "{request}");
    for gone in ["mine", "gzip", "range", "if-none-match"] {
        assert!(!request.contains(gone), "{gone}: {request}");
    }
    scene.get(port, "/query?a=1&key=mine", "");
    let request = requests.recv().unwrap();
    let first = request.lines().next().unwrap();
    assert!(first.starts_with("GET /query?a=1&key=sk-Value%2F%2Bof%3Dthe%26secret "), "{first}");
    // A request without a secret stays as it is.
    scene.get(port, "/other", more);
    assert!(requests.recv().unwrap().contains("accept-encoding: gzip\r\n"));
    let names: Vec<_> = scene.scene.records().into_iter().map(|one| one.secrets).collect();
    assert_eq!(names, [vec!["key".to_owned()], vec!["key".to_owned()], vec![]]);
}

#[test]
fn a_placeholder_becomes_its_secret_in_its_places_alone() {
    let authority = HostAuthority::new();
    let (port, requests) = authority.answering(OK);
    let mut object = with_secret(port);
    object["rules"][format!("b.test:{port}")] = json!([{}]);
    object["rules"][format!("*.wild.test:{port}")] = json!([{}]);
    let scene = RuledScene::new(&authority, object);
    let held = &scene.placeholder;
    for headers in [format!("authorization: Bearer {held}\r\n"), format!("x-api-key: {held}\r\n")] {
        scene.get(port, "/", &headers);
        let request = requests.recv().unwrap();
        assert!(request.contains(SECRET) && !request.contains(held), "{request}");
    }
    scene.get(port, &format!("/?token={held}"), "");
    assert!(requests.recv().unwrap().contains("token=sk-Value%2F%2Bof%3Dthe%26secret"));
    for (path, headers) in [
        ("/".to_owned(), format!("cookie: a={held}\r\n")),
        ("/".to_owned(), format!("referer: https://a.test/?q={held}\r\n")),
        ("/".to_owned(), format!("x-{held}: 1\r\n")),
        (format!("/{held}"), String::new()),
        (format!("/?q={held}"), String::new()),
        (format!("/?q={}", held.replace('_', "%5f")), String::new()),
    ] {
        let answer = scene.get(port, &path, &headers);
        assert!(answer.starts_with("HTTP/1.1 403 "), "{path} {headers}: {answer}");
        assert!(answer.contains("egress.secret_host"), "{path} {headers}: {answer}");
    }
    let mut stream = scene.open_as("b.test", port, "b.test");
    let head =
        format!("GET / HTTP/1.1\r\nhost: b.test:{port}\r\nauthorization: Bearer {held}\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    assert!(super::scene::rest(&mut stream).contains("egress.secret_host"));
    // The name of a host is asked of name servers.
    let named = format!("{held}.wild.test");
    let mut stream = scene.open_as(&named, port, &named);
    stream.write_all(format!("GET / HTTP/1.1\r\nhost: {named}:{port}\r\n\r\n").as_bytes()).unwrap();
    assert!(super::scene::rest(&mut stream).contains("egress.secret_host"));
    assert!(requests.try_recv().is_err(), "a refused request was sent on");
    // Text of that form that is not one of our placeholders passes.
    let foreign = format!("cofferdam_secret_{}", "0".repeat(32));
    scene.get(port, &format!("/?q={foreign}"), &format!("cookie: {foreign}\r\n"));
    assert!(requests.recv().unwrap().contains(&foreign));
}

#[test]
fn a_placeholder_goes_to_no_host_without_rules_and_the_record_says_so() {
    let authority = HostAuthority::new();
    let (port, requests) = http_host(OK);
    let mut object = with_secret(port + 1);
    object["allow"] = json!([format!("a.test:{port}"), format!("*.wild.test:{port}")]);
    let mut scene = RuledScene::new(&authority, object);
    let head = format!(
        "GET http://a.test:{port}/ HTTP/1.1\r\nhost: a.test:{port}\r\nconnection: close\r\n"
    );
    let held = format!("{head}authorization: Bearer {}\r\n\r\n", scene.placeholder);
    assert!(scene.scene.ask(held).contains("egress.secret_host"));
    let named = format!("{}.wild.test:{port}", scene.placeholder);
    for request in [
        format!("GET http://b.test/?{} HTTP/1.1\r\nhost: b.test\r\n\r\n", scene.placeholder),
        format!("GET http://{named}/ HTTP/1.1\r\nhost: {named}\r\n\r\n"),
        format!("CONNECT {named} HTTP/1.1\r\nhost: {named}\r\n\r\n"),
    ] {
        let answer = scene.scene.ask(&request);
        assert!(answer.contains("egress.secret_host"), "{request}: {answer}");
    }
    assert!(requests.try_recv().is_err(), "a placeholder was sent on");
    assert!(scene.scene.ask(format!("{head}\r\n")).starts_with("HTTP/1.1 200 "));
    let verdicts = scene.verdicts();
    assert_eq!(verdicts[..4], ["denied secret_host -"; 4], "{verdicts:?}");
}

/// An answer of 200 with `headers`, each with its line end, and `body`.
fn answer(headers: &str, body: &str) -> String {
    format!("HTTP/1.1 200 {SECRET}\r\n{headers}\r\n{body}")
}

/// `answer` with the chunks of its body joined.
fn unchunked(answer: &str) -> String {
    let (head, mut rest) = answer.split_once("\r\n\r\n").unwrap();
    let mut joined = format!("{head}\r\n\r\n");
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        joined.push_str(&behind[..size]);
        rest = behind[size..].trim_start_matches("\r\n");
        if size == 0 {
            joined.push_str(rest);
            break;
        }
    }
    joined
}

#[test]
fn an_answer_shows_no_secret_in_whatever_form() {
    let authority = HostAuthority::new();
    let percent = "sk-Value%2F%2Bof%3Dthe%26secret";
    let lower = "sk-Value%2f%2bof%3dthe%26secret";
    let json_text = SECRET.replace('/', "\\/");
    let base64 = |text: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let forms = [
        SECRET.to_owned(),
        percent.to_owned(),
        lower.to_owned(),
        json_text,
        base64(SECRET),
        base64(&format!("x{SECRET}")),
        base64(&format!("user:{SECRET}")),
    ];
    for form in &forms {
        let body = format!("before {form} behind");
        let mut chunked = String::new();
        for piece in body.as_bytes().chunks(5) {
            let piece = std::str::from_utf8(piece).unwrap();
            chunked.push_str(&format!("{:x}\r\n{piece}\r\n", piece.len()));
        }
        for reply in [
            answer(
                &format!(
                    "content-length: {}\r\nx-echo: {form}\r\netag: a\r\ndigest: x\r\n",
                    body.len()
                ),
                &body,
            ),
            answer(
                &format!("transfer-encoding: chunked\r\nx-echo: {form}\r\n"),
                &format!("{chunked}0\r\nx-trailer: {form}\r\n\r\n"),
            ),
        ] {
            let (port, _requests) = authority.answering(reply);
            let scene = RuledScene::new(&authority, with_secret(port));
            let got = unchunked(&scene.get(port, "/added", "te: trailers\r\n"));
            let shown = got.to_lowercase();
            assert!(!shown.contains(&form[4..form.len() - 4].to_lowercase()), "{form}: {got}");
            assert!(got.contains("[redacted]") && got.contains("before "), "{form}: {got}");
            assert!(got.contains(" behind"), "{form}: {got}");
            assert!(!shown.contains("content-length") && !shown.contains("digest:"), "{got}");
        }
    }
}

#[test]
fn an_answer_that_cannot_be_searched_is_none() {
    let authority = HostAuthority::new();
    for (status, headers) in [
        ("200 OK", "content-encoding: gzip\r\n"),
        ("200 OK", "content-encoding: identity\r\ncontent-encoding: br\r\n"),
        ("206 Partial Content", "content-range: bytes 0-1/2\r\n"),
    ] {
        let reply = format!("HTTP/1.1 {status}\r\ncontent-length: 2\r\n{headers}\r\nhi");
        let (port, _requests) = authority.answering(reply);
        let mut scene = RuledScene::new(&authority, with_secret(port));
        let got = scene.get(port, "/added", "");
        assert!(got.starts_with("HTTP/1.1 502 ") && got.contains("egress.encoding"), "{got}");
        // Without a secret it passes.
        assert!(scene.get(port, "/other", "").ends_with("hi"));
        assert_eq!(scene.verdicts(), ["failed encoding 0", "allowed - 2"]);
    }
}

#[test]
fn an_error_of_the_host_shows_no_secret() {
    let authority = HostAuthority::new();
    let reply =
        format!("HTTP/1.1 401 no\r\ncontent-type: application/json\r\n\r\n{{\"k\":\"{SECRET}\"}}");
    let port = authority.host(move |mut stream| {
        read_message(&mut stream);
        let _ = stream.write_all(reply.as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    let mut scene = RuledScene::new(&authority, with_secret(port));
    let got = scene.get(port, "/added", "");
    assert!(got.starts_with("HTTP/1.1 401 ") && got.contains("[redacted]"), "{got}");
    assert!(!got.contains(SECRET), "{got}");
    let records: Value = serde_json::to_value(scene.scene.records()).unwrap();
    assert!(!records.to_string().contains("sk-Value"), "{records}");
}
