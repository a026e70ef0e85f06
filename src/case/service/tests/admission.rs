//! What is admitted, and what is refused.

use std::fs;
use std::os::unix::fs::symlink;

use super::scene::{case_yaml, exists, request_of, scene, wait_ended};
use crate::case::service::{CaseInput, CaseRunRequest, CaseRunStatus, CaseRuns, CaseRunsError};
use cofferdam_core::job::{Idempotency, Sha256};

fn key(key: &str, body: &[u8]) -> Option<Idempotency> {
    let body: Sha256 =
        serde_json::from_value(cofferdam_core::values::digest::sha256_of(body).into()).unwrap();
    Some(Idempotency { key: key.to_owned(), body })
}

fn staged(staged: crate::case::service::StagedCase) -> CaseRunRequest {
    let mut request = request_of("/".into(), 1);
    request.input = CaseInput::Staged(staged);
    request
}

#[test]
fn a_case_outside_of_the_roots_is_refused_and_nothing_is_left() {
    let scene = scene();
    fs::create_dir(scene.path().join("other")).unwrap();
    fs::write(scene.path().join("other/case.yaml"), case_yaml("o", "")).unwrap();
    symlink(scene.path().join("other"), scene.path().join("cases/link")).unwrap();
    let service = scene.service();
    for path in ["other", "other/case.yaml", "missing", "cases/link", "cases/../other", "store"] {
        let refused = service.submit("t", request_of(scene.path().join(path), 1), None);
        assert_eq!(refused.err(), Some(CaseRunsError::PathDenied), "{path}");
    }
    let missing = service.submit("t", scene.request("missing", 1), None).unwrap_err();
    assert_eq!(missing.code(), "validation.invalid_case");
    assert_eq!(missing.details()["errors"][0]["code"], "not_found");
    let relative = service.submit("t", request_of("cases/c".into(), 1), None).unwrap_err();
    assert_eq!(relative.code(), "validation.invalid_request");
    assert!(!exists(&scene.store()));
}

#[test]
fn a_case_in_the_store_is_refused_below_any_root() {
    let scene = scene();
    let service = scene.service_with(|settings| {
        settings.roots = crate::policy::WorkspaceRoots::Only(vec!["/".into()]);
    });
    let id = scene.submit(&service, "t", 1);
    wait_ended(&service, "t", &id);
    let path = scene.store().join("cases").join(id).join("case.yaml");
    assert!(path.is_file());
    let refused = service.submit("u", request_of(path, 1), None);
    assert_eq!(refused.err(), Some(CaseRunsError::PathDenied));
}

#[test]
fn a_case_that_is_not_valid_or_not_allowed_is_refused_with_all_reasons() {
    let scene = scene();
    let service = scene.service();
    scene.write_case("bad", "graders: [{type: command}, {type: nosuch}]\n");
    let invalid = service.submit("t", scene.request("bad", 1), None).unwrap_err();
    assert_eq!(invalid.code(), "validation.invalid_case");
    let wanted = crate::case::file::load_case(&scene.path().join("cases/bad")).unwrap_err();
    assert!(wanted.errors.len() > 1);
    assert_eq!(invalid.details()["errors"], serde_json::to_value(wanted.errors).unwrap());

    scene.write_case(
        "denied",
        "source: {path: /usr}\nenvironment: {egress: [pypi.org]}\n\
         container: {image: i, env_passthrough: [A]}\n",
    );
    let denied = service.submit("t", scene.request("denied", 1), None).unwrap_err();
    let details = denied.details();
    let paths: Vec<_> =
        details["denials"].as_array().unwrap().iter().map(|one| one["path"].clone()).collect();
    assert_eq!(paths, ["source.path", "environment.egress[0]", "container.env_passthrough"]);
    assert_eq!(denied.code(), "policy.path_denied");

    for (harnesses, trials, field) in
        [(vec!["nosuch".to_owned()], 1, "harnesses"), (Vec::new(), 0, "trials")]
    {
        let request = CaseRunRequest { harnesses, ..scene.request("c", trials) };
        let refused = service.submit("t", request, None).unwrap_err();
        assert_eq!(refused.details()["field"], field);
    }
    assert!(!exists(&scene.store()));
}

#[test]
fn runs_that_wait_are_bounded_and_a_refused_one_leaves_nothing() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service_with(|settings| settings.queue_max = 1);
    let running = scene.submit(&service, "t", 1);
    scene.script.wait_begun(1);
    let waiting = scene.submit(&service, "t", 1);
    let stored = scene.stored();
    let refused = service.submit("u", scene.request("c", 1), None).unwrap_err();
    assert!(matches!(refused, CaseRunsError::QueueFull { queue_max: 1, .. }), "{refused:?}");
    assert_eq!(refused.code(), "queue.full");
    assert_eq!(scene.stored(), stored);
    service.cancel("t", &waiting).unwrap();
    let admitted = scene.submit(&service, "u", 1);
    scene.script.release_all();
    assert_eq!(wait_ended(&service, "u", &admitted).status, CaseRunStatus::Done);
    assert_eq!(wait_ended(&service, "t", &running).status, CaseRunStatus::Done);
}

#[test]
fn a_key_gets_the_first_answer_again_also_after_a_restart() {
    let scene = scene();
    let service = scene.service();
    let submit = |service: &crate::case::service::CaseService, owner, name, body: &[u8]| {
        service.submit(owner, scene.request("c", 1), key(name, body)).map(|answer| answer.run_id)
    };
    let first = submit(&service, "t", "k", b"a").unwrap();
    assert_eq!(submit(&service, "t", "k", b"a"), Ok(first.clone()));
    assert_eq!(submit(&service, "t", "k", b"b"), Err(CaseRunsError::IdempotencyConflict));
    assert_ne!(submit(&service, "u", "k", b"a"), Ok(first.clone()));
    assert_ne!(submit(&service, "t", "l", b"a"), Ok(first.clone()));
    drop(service);
    let service = scene.service();
    assert_eq!(submit(&service, "t", "k", b"a"), Ok(first));
    assert_eq!(submit(&service, "t", "k", b"b"), Err(CaseRunsError::IdempotencyConflict));
}

#[test]
fn the_files_of_a_case_that_was_sent_are_there_until_its_run_has_ended() {
    let scene = scene();
    scene.script.hold();
    let service = scene.service();
    for below in ["", "top/"] {
        let upload = service.stage().unwrap();
        fs::create_dir_all(upload.path().join(below)).unwrap();
        fs::write(upload.path().join(below).join("case.yaml"), case_yaml("u", "")).unwrap();
        let id = service.submit("t", staged(upload), None).unwrap().run_id;
        let input = scene.store().join("cases").join(&id).join("input");
        assert!(input.join(below).join("case.yaml").is_file());
        scene.script.wait_begun(1);
        assert!(exists(&input));
        service.cancel("t", &id).unwrap();
        wait_ended(&service, "t", &id);
        assert!(!exists(&input));
        assert!(exists(&scene.store().join("cases").join(&id).join("junit.xml")));
    }
}

#[test]
fn files_that_were_sent_in_vain_are_removed() {
    let scene = scene();
    let service = scene.service_with(|settings| settings.input_bytes_max = 1000);
    drop(service.stage().unwrap());
    assert_eq!(scene.stored(), [""; 0]);

    let empty = service.submit("t", staged(service.stage().unwrap()), None).unwrap_err();
    assert_eq!(empty.details()["errors"][0]["code"], "not_found");
    let large = service.stage().unwrap();
    fs::write(large.path().join("case.yaml"), case_yaml("u", "")).unwrap();
    fs::write(large.path().join("data"), vec![b'x'; 1000]).unwrap();
    let refused = service.submit("t", staged(large), None).unwrap_err();
    assert_eq!(refused, CaseRunsError::TooLarge { bytes_max: 1000 });
    let linked = service.stage().unwrap();
    symlink(scene.path().join("cases/c/case.yaml"), linked.path().join("case.yaml")).unwrap();
    let refused = service.submit("t", staged(linked), None).unwrap_err();
    assert_eq!(refused.code(), "validation.invalid_case");
    let outside = service.stage().unwrap();
    let yaml = case_yaml("u", "source: {path: /usr}\n");
    fs::write(outside.path().join("case.yaml"), yaml).unwrap();
    let refused = service.submit("t", staged(outside), None).unwrap_err();
    assert_eq!(refused.code(), "policy.path_denied");
    assert_eq!(scene.stored(), [""; 0]);
}
