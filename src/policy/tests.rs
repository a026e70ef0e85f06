//! The order of the rules, and the contents of decisions.

mod commands;
mod shells;

use serde_json::json;

use super::testing::{open_runner, outcome_of, request, usual, verdict};
use super::*;

/// A request that every rule denies.
fn denied_by_every_rule() -> RunJobRequest {
    let mut request = request(&["bash", "-c", "x"], &json!([]));
    request.command.env.insert("LD_PRELOAD".to_owned(), "hidden".to_owned());
    request.policy.artifacts.include = vec!["/etc/*".to_owned()];
    request.policy.network = Network::Host;
    request
}

#[test]
fn the_first_rule_that_fails_is_reported() {
    let nowhere = PolicyConfig { roots: WorkspaceRoots::Only(Vec::new()), ..open_runner() };
    let mut request = denied_by_every_rule();
    let code = |request: &RunJobRequest, config: &PolicyConfig| {
        let outcome = evaluate(request, config, WorkspaceFacts::default(), &usual());
        let code = verdict(&outcome);
        let denied = code != "allowed";
        assert_eq!(outcome.decision.decision == Decision::Denied, denied);
        assert_eq!(outcome.decision.reasons.first().map(String::as_str) == Some(code), denied);
        code
    };
    assert_eq!(code(&request, &nowhere), "policy.command_denied");
    request.policy.allowed_commands = vec![cofferdam_core::job::AllowedCommand::named("bash")];
    assert_eq!(code(&request, &nowhere), "policy.shell_denied");
    request.policy.allow_shell = true;
    assert_eq!(code(&request, &nowhere), "policy.env_denied");
    request.policy.allowed_env = vec!["LD_PRELOAD".to_owned()];
    assert_eq!(code(&request, &nowhere), "policy.artifact_denied");
    request.policy.artifacts.include.clear();
    assert_eq!(code(&request, &nowhere), "policy.workspace_denied");
    assert_eq!(code(&request, &open_runner()), "policy.network_denied");
    request.policy.network = Network::None;
    assert_eq!(code(&request, &open_runner()), "allowed");
}

#[test]
fn a_variable_needs_to_be_listed_by_the_request_or_the_runner() {
    for (key, asked, runner, expected) in [
        ("LANG", &[][..], &[][..], "policy.env_denied"),
        ("LANG", &["LANG"], &[], "allowed"),
        ("LANG", &[], &["LANG"], "allowed"),
        ("LANG", &["LANGUAGE"], &["LC_ALL"], "policy.env_denied"),
        ("lang", &["LANG"], &["LANG"], "policy.env_denied"),
        ("LD_PRELOAD", &["LD_PRELOAD"], &[], "allowed"),
    ] {
        let mut request = request(&["python3"], &json!(["python3"]));
        request.command.env.insert(key.to_owned(), "the-value".to_owned());
        request.policy.allowed_env = asked.iter().map(|name| (*name).to_owned()).collect();
        let allowed_env = runner.iter().map(|name| (*name).to_owned()).collect();
        let config = PolicyConfig { allowed_env, ..open_runner() };
        let outcome = evaluate(&request, &config, WorkspaceFacts::default(), &usual());
        assert_eq!(verdict(&outcome), expected, "{key} {asked:?} {runner:?}");
        if let Some(error) = &outcome.error {
            assert_eq!(error.details["key"], key);
        }
        assert!(!format!("{outcome:?}").contains("the-value"));
    }
}

#[test]
fn the_decision_names_dangerous_variables_and_never_their_values() {
    let mut request = request(&["python3"], &json!(["python3"]));
    for key in ["LD_PRELOAD", "LANG", "BASH_ENV"] {
        request.command.env.insert(key.to_owned(), "value".to_owned());
    }
    let names = ["LD_PRELOAD", "LANG", "BASH_ENV"];
    request.policy.allowed_env = names.map(str::to_owned).to_vec();
    let allowed = outcome_of(&request);
    let dangerous = ["dangerous_env:BASH_ENV", "dangerous_env:LD_PRELOAD"];
    assert_eq!(
        (verdict(&allowed), &allowed.decision.reasons[..]),
        ("allowed", &dangerous.map(str::to_owned)[..])
    );
    request.policy.allowed_env.clear();
    let denied = outcome_of(&request);
    assert_eq!(denied.decision.reasons[0], "policy.env_denied");
    assert_eq!(denied.decision.reasons[1..], dangerous);
    assert!(!format!("{allowed:?}{denied:?}").contains("value"));
}

#[test]
fn the_version_of_a_decision_covers_everything_that_is_allowed() {
    let first = request(&["python3"], &json!(["python3"]));
    let version = |request: &RunJobRequest, config: &PolicyConfig| {
        evaluate(request, config, WorkspaceFacts::default(), &usual()).decision.version
    };
    let of_first = version(&first, &open_runner());
    assert!(of_first.starts_with("v1:") && of_first.len() == 3 + 64, "{of_first}");

    let mut other = request(&["node"], &json!(["python3"]));
    other.workspace.path = "/elsewhere".into();
    let roots = WorkspaceRoots::Only(vec!["/srv".into()]);
    let elsewhere = PolicyConfig { roots, ..open_runner() };
    assert_eq!(
        version(&other, &elsewhere),
        of_first,
        "a denied request with another command and workspace"
    );

    other.policy.allow_shell = true;
    assert_ne!(version(&other, &open_runner()), of_first);
    let allowed_env = ["LANG".to_owned()].into();
    assert_ne!(version(&first, &PolicyConfig { allowed_env, ..open_runner() }), of_first);
}

#[test]
fn a_failed_lookup_of_programs_denies_the_job() {
    struct Broken;
    impl ProgramFinder for Broken {
        fn find(&self, _: &str) -> Result<Option<ResolvedProgram>, String> {
            Err("input/output error".to_owned())
        }
    }
    let outcome = evaluate(
        &request(&["python3"], &json!(["python3"])),
        &open_runner(),
        WorkspaceFacts::default(),
        &Broken,
    );
    assert_eq!(verdict(&outcome), "backend.setup_failed");
    assert_eq!((outcome.decision.decision, outcome.command), (Decision::Denied, None));
    let nothing_allowed = request(&["python3"], &json!([]));
    let outcome = evaluate(&nothing_allowed, &open_runner(), WorkspaceFacts::default(), &Broken);
    assert_eq!(verdict(&outcome), "policy.command_denied");
}

#[test]
fn the_network_of_the_host_is_denied() {
    let mut request = request(&["python3"], &json!(["python3"]));
    let none = outcome_of(&request);
    assert_eq!((none.decision.network, none.decision.network_enforced), (Network::None, false));
    request.policy.network = Network::Host;
    let host = outcome_of(&request);
    assert_eq!(verdict(&host), "policy.network_denied");
    assert_eq!(host.decision.network, Network::Host);
}

#[test]
fn hosts_are_allowed_within_those_of_the_runner() {
    let list = |entries: &[&str]| -> Vec<String> {
        entries.iter().map(|entry| (*entry).to_owned()).collect()
    };
    let network_hosts = AllowList::parse(&list(&["*.example.org:*", "pypi.org"])).unwrap();
    let config = PolicyConfig { network_hosts, ..open_runner() };
    for (entries, expected) in [
        (&[][..], "allowed"),
        (&["pypi.org", "a.example.org:80"], "allowed"),
        (&["pypi.org:80"], "policy.network_denied"),
        (&["pypi.org", "example.org"], "policy.network_denied"),
        (&["*.org"], "policy.network_denied"),
        (&["no host"], "policy.network_denied"),
    ] {
        let mut request = request(&["python3"], &json!(["python3"]));
        request.policy.network =
            Network::Allow(cofferdam_core::NetworkObject::of_hosts(list(entries)));
        let outcome = evaluate(&request, &config, WorkspaceFacts::default(), &usual());
        assert_eq!(verdict(&outcome), expected, "{entries:?}");
    }
}

#[test]
fn deny_patterns_of_artifacts_are_never_refused() {
    let mut request = request(&["python3"], &json!(["python3"]));
    request.policy.artifacts.deny = vec!["**/*.key".to_owned(), "/etc/**".to_owned()];
    assert_eq!(verdict(&outcome_of(&request)), "allowed");
    request.policy.artifacts.include = vec!["**/*.key".to_owned()];
    assert_eq!(verdict(&outcome_of(&request)), "policy.artifact_denied");
}
