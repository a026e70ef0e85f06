//! Archives that are refused, and leave nothing.

use serde_json::{Value, json};

use super::scene::{CASE, ONE, Scene, archive, error, post};

#[test]
fn an_archive_that_leads_out_or_bursts_is_refused_and_leaves_nothing() {
    let Some(scene) = Scene::new() else { return };
    let service = scene.setup().env("CASES_INPUT_MAX", "4MiB").start();
    let zeros = 64 << 20;
    for (kind, entry, path, code) in [
        ("tar.gz", json!(["../out", "x"]), "../out", "unsafe_path"),
        ("tar.gz", json!(["a/../../out", "x"]), "a/../../out", "unsafe_path"),
        ("tar.gz", json!(["/tmp/out", "x"]), "/tmp/out", "unsafe_path"),
        ("tar.gz", json!(["src", "symlink", "/etc"]), "src", "unsafe_path"),
        ("tar.gz", json!(["a", "symlink", "case.yaml"]), "a", "unsafe_path"),
        ("tar.gz", json!(["a", "hardlink", "case.yaml"]), "a", "unsafe_path"),
        ("tar.gz", json!(["a", "fifo", ""]), "a", "invalid_value"),
        ("tar.gz", json!(["case.yaml", "id: b\n"]), "case.yaml", "invalid_value"),
        ("tar.gz", json!(["a", "zeros", zeros]), "a", "too_large"),
        ("zip", json!(["../out", "x"]), "../out", "unsafe_path"),
        ("zip", json!(["/tmp/out", "x"]), "/tmp/out", "unsafe_path"),
        ("zip", json!(["a", "symlink", "/etc/passwd"]), "a", "unsafe_path"),
        ("zip", json!(["a", "zeros", zeros]), "a", "too_large"),
    ] {
        let body = archive(kind, &json!([["case.yaml", CASE], entry]));
        let answer = post(&service, "/v1/cases", ONE, body);
        let fault = error(&answer, 422, "validation.invalid_case");
        let first = &fault["details"]["errors"][0];
        assert_eq!(
            (&first["path"], &first["code"]),
            (&json!(path), &json!(code)),
            "{kind} {entry}"
        );
    }
    // Random bytes hardly shrink: their size alone refuses them.
    let large = archive("tar.gz", &json!([["case.yaml", CASE], ["a", noise(5 << 20)]]));
    let answer = post(&service, "/v1/cases", ONE, large);
    let fault = error(&answer, 413, "validation.too_large");
    assert_eq!(fault["details"]["bytes_max"], 4 << 20);
    for (body, code) in [
        (archive("zip", &json!([["readme", "x"]])), "validation.invalid_case"),
        (archive("tar.gz", &json!([["a/b/case.yaml", CASE]])), "validation.invalid_case"),
        (archive("zip", &json!([["case.yaml", "id: ["]])), "validation.invalid_case"),
        (b"\x1f\x8b\x08\x00 cut".to_vec(), "validation.invalid_request"),
        (b"PK\x03\x04 cut".to_vec(), "validation.invalid_request"),
    ] {
        error(&post(&service, "/v1/cases", ONE, body), 422, code);
    }
    assert_eq!(scene.runs(), 0, "what was refused is left");
    assert!(!std::path::Path::new("/tmp/out").exists());
}

/// Text that compresses to about three quarters.
fn noise(bytes: usize) -> Value {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b'0' + u8::try_from(state % 64).unwrap())
    };
    (0..bytes).map(|_| next()).collect::<String>().into()
}
