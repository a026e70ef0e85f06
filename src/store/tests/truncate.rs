//! Truncated results.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::json;

use crate::store::tests::fixtures::{artifact, result, stream};
use crate::store::truncate::{escaped_bytes, json_bytes, truncate};
use cofferdam_core::job::{
    ErrorCode, Executable, JobError, OmittedArtifact, OmittedReason, RunJobResult, Sha256,
    TextEncoding,
};

const MIN: u64 = 64 << 10;

fn truncated(mut result: RunJobResult, max: u64) -> RunJobResult {
    truncate(&mut result, max);
    let json = serde_json::to_vec(&result).unwrap();
    assert!(json.len() as u64 <= max, "{} bytes of {max}", json.len());
    assert_eq!(serde_json::from_slice::<RunJobResult>(&json).unwrap(), result);
    result
}

#[test]
fn a_small_result_is_not_changed() {
    let whole = result("a", 0);
    assert_eq!(truncated(whole.clone(), json_bytes(&whole)), whole);
}

#[test]
fn streams_share_the_room() {
    let mut both = result("a", 0);
    both.stdout = stream(&"o".repeat(1 << 20));
    both.stderr = stream("short");
    let cut = truncated(both.clone(), MIN);
    assert_eq!(cut.stderr, both.stderr);
    assert!(cut.stdout.truncated && cut.stdout.text.len() > 60_000);
    assert_eq!((cut.stdout.bytes, &cut.stdout.sha256), (1 << 20, &both.stdout.sha256));
    let missing = (1 << 20) - cut.stdout.text.len();
    assert_eq!(cut.not_recorded, [format!("stdout.text: {missing} bytes")]);
    both.stderr = stream(&"\0".repeat(1 << 20));
    let cut = truncated(both, MIN);
    assert!(cut.stdout.text.len() > 30_000 && cut.stderr.text.len() > 5_000);
    assert_eq!(cut.not_recorded.len(), 2);
}

#[test]
fn a_truncated_base64_text_is_a_prefix_of_the_bytes() {
    let bytes: Vec<u8> = (0..100_000_u32).map(|byte| byte.to_le_bytes()[0] ^ 0xFF).collect();
    for max in [MIN, MIN + 1, MIN + 2, MIN + 3] {
        let mut whole = result("a", 0);
        whole.stderr = stream(&STANDARD.encode(&bytes));
        whole.stderr.encoding = TextEncoding::Base64;
        let cut = truncated(whole, max);
        let kept = STANDARD.decode(&cut.stderr.text).unwrap();
        assert!(cut.stderr.truncated && bytes.starts_with(&kept) && kept.len() > 40_000);
    }
}

/// Results with one field that is too large, each with its note.
fn oversized() -> Vec<(&'static str, RunJobResult)> {
    let large = "\u{1}".repeat(1 << 20);
    let with = |change: &dyn Fn(&mut RunJobResult)| {
        let mut result = result("a", 0);
        change(&mut result);
        result
    };
    let error = JobError::new(ErrorCode::SpawnFailed, "m");
    let omitted = OmittedArtifact { path: "p/".repeat(50), reason: OmittedReason::Denied };
    vec![
        ("error.message", with(&|it| it.error = Some(JobError::new(ErrorCode::IoFailed, &*large)))),
        (
            "error.details",
            with(&|it| it.error = Some(error.clone().with("a", json!({"b": [large.clone()]})))),
        ),
        ("error.details", with(&|it| it.error = Some(error.clone().with("a", vec![1; 1 << 20])))),
        ("command.argv", with(&|it| it.command.argv = vec![large.clone()])),
        ("command.argv", with(&|it| it.command.argv = vec![String::new(); 300_000])),
        ("artifacts_omitted", with(&|it| it.artifacts_omitted = vec![omitted.clone(); 10_000])),
        ("policy.reasons", with(&|it| it.policy.reasons = vec!["dangerous".to_owned(); 100_000])),
        ("not_enforced", with(&|it| it.not_enforced = vec![large.clone()])),
        ("enforced", with(&|it| drop(it.enforced.insert("a".to_owned(), large.clone().into())))),
        ("trace", with(&|it| drop(it.trace.insert("a".to_owned(), large.clone().into())))),
        ("trace", with(&|it| drop(it.trace.insert(large.clone(), 1.into())))),
        ("command.cwd", with(&|it| it.command.cwd.clone_from(&large))),
        (
            "command.executable.path",
            with(&|it| {
                let sha256 = Sha256::parse(&"0".repeat(64)).unwrap();
                it.command.executable = Some(Executable { path: large.clone(), sha256 });
            }),
        ),
        (
            "artifacts",
            with(&|it| it.artifacts = (0..10_000).map(|n| artifact(&n.to_string())).collect()),
        ),
    ]
}

#[test]
fn a_field_that_is_too_large_is_truncated_and_named() {
    for (name, whole) in oversized() {
        let cut = truncated(whole, MIN);
        let named = |note: &String| note.split(':').next() == Some(name);
        assert!(cut.not_recorded.iter().any(named), "{name}: {:?}", cut.not_recorded);
        assert_eq!(cut.trace["trace_id"], "t", "{name}");
        assert_eq!((cut.job_id.as_str(), cut.replay.result.as_str()), ("a", "v1:b"), "{name}");
    }
}

#[test]
fn a_result_with_everything_too_large_fits_too() {
    let mut all = result(&"a".repeat(128), 0);
    for (_, one) in oversized() {
        all.error = one.error.or(all.error);
        all.command.argv.extend(one.command.argv);
        all.artifacts_omitted.extend(one.artifacts_omitted);
        all.policy.reasons.extend(one.policy.reasons);
        all.not_enforced.extend(one.not_enforced);
        all.enforced.extend(one.enforced);
        all.trace.extend(one.trace);
        all.command.cwd.push_str(&one.command.cwd);
        all.command.executable = one.command.executable.or(all.command.executable);
        all.artifacts.extend(one.artifacts);
    }
    all.stdout = stream(&"é".repeat(1 << 20));
    let cut = truncated(all, MIN);
    assert!(!cut.artifacts.is_empty(), "artifacts go last: {:?}", cut.not_recorded);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 12, ..Default::default() })]

    #[test]
    fn any_text_is_cut_at_a_character_and_the_record_has_no_more_than_its_bytes(
        characters in proptest::collection::vec(any::<char>(), 1..64),
        times in 500_usize..1500, argv in 0_usize..20_000, max in MIN..MIN * 2,
    ) {
        let text = characters.into_iter().collect::<String>().repeat(times);
        let mut whole = result("a", 0);
        whole.stdout = stream(&text);
        whole.stderr = stream(&text);
        whole.command.argv = vec!["x\"".to_owned(); argv];
        let cut = truncated(whole, max);
        prop_assert!(text.starts_with(&cut.stdout.text) && text.starts_with(&cut.stderr.text));
        prop_assert_eq!(cut.stdout.truncated, cut.stdout.text.len() < text.len());
        prop_assert_eq!(cut.not_recorded.is_empty(), cut.stdout.text.len() == text.len()
            && cut.stderr.text.len() == text.len() && cut.command.argv.len() == argv);
    }

    #[test]
    fn the_size_of_a_text_is_what_json_makes_of_it(text in any::<String>()) {
        prop_assert_eq!(escaped_bytes(&text) + 2, json_bytes(&text));
    }
}
