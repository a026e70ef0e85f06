//! Origins, paths and slugs of requests.

use cofferdam_test_server::client::{Answer, post, request};
use serde_json::json;

use super::plain;
use crate::Unexercised;
use crate::probe::Probe;
use crate::target::Target;

const UNSUPPORTED: &str = r#"{"error":"unsupported lang_slug"}"#;
/// Text of a file that every process may read.
const READABLE: &str = "root:x:0:0";

#[track_caller]
fn assert_readable_by_no_page(answer: &Answer) {
    assert!(!answer.head.to_lowercase().contains("access-control-allow-"), "{}", answer.head);
}

pub fn other_origins(target: &Target) -> Result<(), Unexercised> {
    let refused = r#"{"error":"cross-origin request"}"#;
    let body = Probe::inline("def probe():\n    return None").body(target.slug()).to_string();
    for origin in [
        "http://evil.example",
        "https://evil.example:8443",
        "null",
        "",
        "file://",
        // A name rebound to this address.
        "http://x",
        "http://localhost",
        "http://127.0.0.1",
    ] {
        // Content types that a page may send without a preflight, and one that needs it.
        for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json"] {
            let headers = format!("origin: {origin}\r\ncontent-type: {kind}\r\n");
            let answer = target.ask(post(&headers, &body));
            answer.assert_json(403, refused);
            assert_readable_by_no_page(&answer);
        }
        let headers = format!(
            "origin: {origin}\r\naccess-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n"
        );
        assert_readable_by_no_page(&target.ask(request("OPTIONS", "/run", &headers)));
        let headers = format!("origin: {origin}\r\n");
        assert_readable_by_no_page(&target.ask(request("GET", "/health", &headers)));
        let shutdown =
            format!("POST /shutdown HTTP/1.1\r\nhost: x\r\n{headers}content-length: 0\r\n\r\n");
        assert!([403, 404].contains(&target.ask(shutdown).status), "{origin:?}");
    }
    let twice = "origin: http://evil.example\r\norigin: http://x\r\n";
    target.ask(post(twice, &body)).assert_json(403, refused);
    // A page whose name was rebound sends no Origin with read-only requests.
    for path in ["/status", "/metrics", "/v1/jobs", "/nowhere"] {
        let rebound = request("GET", path, "").replacen("host: x", "host: attacker.example", 1);
        assert!(rebound.contains("attacker.example"));
        assert_eq!(target.ask(rebound).status, 403, "{path}");
    }
    // Clients other than browsers send no Origin.
    assert_eq!(target.ask(plain(target)).status, 200);
    Ok(())
}

pub fn traversal(target: &Target) -> Result<(), Unexercised> {
    paths(target);
    slugs(target);
    Ok(())
}

fn paths(target: &Target) {
    let missing = r#"{"error":"not found"}"#;
    for path in [
        "/",
        "/..",
        "/../",
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "/%2e%2e/%2e%2e/etc/passwd",
        "/.%2e/etc/passwd",
        "/%252e%252e/etc/passwd",
        "/..\\..\\etc\\passwd",
        "/..;/health",
        "/health/../../etc/passwd",
        "/health/..",
        "/health/../run",
        "/health/",
        "/health%00",
        "/health%2f",
        "/./health",
        "//health",
        "///etc/passwd",
        "/run/../health",
        "/run/",
        "/run/..",
        "/run/../../etc/passwd",
        "/run%2f..%2f..%2fetc%2fpasswd",
        "/run-evil",
        "/runs-evil",
        "/runs/../run",
        "/running",
        "/RUN",
        "/Health",
        "/etc/passwd",
        "/proc/self/environ",
        "/langs/python/Makefile",
        "/%72un",
        "http://x/../../etc/passwd",
        "file:///etc/passwd",
    ] {
        for method in ["GET", "POST"] {
            let answer = target.ask(request(method, path, "content-length: 0\r\n"));
            assert!([400, 404].contains(&answer.status), "{method} {path}: {answer:?}");
            assert!(!answer.body.contains(READABLE), "{method} {path}: {answer:?}");
            if answer.status == 404 {
                answer.assert_json(404, missing);
            }
        }
    }
}

fn slugs(target: &Target) {
    let slug = target.slug();
    let around = [
        format!("./{slug}"),
        format!("{slug}/"),
        format!("{slug}/."),
        format!("{slug}/../{slug}"),
        format!("../langs/{slug}"),
        format!("langs/{slug}"),
        format!("/{slug}"),
        format!(" {slug}"),
        format!("{slug} "),
        format!("{slug}\n"),
        format!("{slug}\0"),
        format!("{slug}\0.evil"),
        format!("{slug}%00"),
        format!("{slug}-evil"),
        format!("{slug}s"),
        slug.to_uppercase(),
        format!("{slug}\u{200b}"),
        format!("{slug}\u{43e}"),
        format!("{slug},{slug}"),
    ];
    let elsewhere = [
        "",
        ".",
        "..",
        "../",
        "../..",
        "../../etc",
        "/",
        "/etc",
        "/etc/passwd",
        "..\\..",
        "%2e%2e",
        "~",
        "~root",
        "*",
        "$HOME",
        "`id`",
        "$(id)",
        ";id",
        "-rf",
        "--help",
        "\0",
        "\n",
        "__proto__",
        "constructor",
        "con",
        "\u{202e}nohtyp",
    ];
    let long = "../".repeat(10_000);
    let names = around.iter().map(String::as_str).chain(elsewhere).chain([long.as_str()]);
    for name in names {
        let body = json!({ "lang_slug": name, "solution_text": "", "checker_text": "" });
        target.ask(post("", body.to_string())).assert_json(400, UNSUPPORTED);
    }
}
