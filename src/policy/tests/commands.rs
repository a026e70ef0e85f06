//! The rule on commands.

use serde_json::{Value, json};

use crate::policy::testing::{digest_of, outcome_of, request, usual, verdict};
use crate::policy::{CommandLocation, ProgramFinder};
use cofferdam_core::values::rel_path::RelPath;

const DENIED: &str = "policy.command_denied";

fn path_of(argv0: &str, commands: &Value) -> Result<Option<String>, &'static str> {
    let outcome = outcome_of(&request(&[argv0], commands));
    let command = outcome.command.as_ref();
    match verdict(&outcome) {
        "allowed" => Ok(command.unwrap().program.as_ref().map(|program| program.path.clone())),
        code => Err(code),
    }
}

#[test]
fn a_program_needs_an_entry_that_matches_it() {
    let pinned = json!([{"basename": "python", "path": "/usr/bin/python3"}]);
    for (argv0, commands, expected) in [
        ("python3", json!([]), Err(DENIED)),
        ("python3", json!(["python3"]), Ok("/usr/bin/python3")),
        ("python3", json!(["ls", "python3"]), Ok("/usr/bin/python3")),
        ("python3", json!(["python"]), Err(DENIED)),
        ("Python3", json!(["python3"]), Err(DENIED)),
        // An absolute path directly in the fixed PATH matches a name.
        ("/usr/bin/python3", json!(["python3"]), Ok("/usr/bin/python3")),
        ("/bin/python3", json!(["python3"]), Ok("/bin/python3")),
        ("/usr/bin//./python3", json!(["python3"]), Ok("/usr/bin/python3")),
        ("/usr/bin/../bin/python3", json!(["python3"]), Err(DENIED)),
        ("/opt/tool/bin/tool", json!(["tool"]), Err(DENIED)),
        ("/opt/link", json!(["link"]), Err(DENIED)),
        ("/opt/link", json!(["python3.11"]), Err(DENIED)),
        // A file of the workspace never matches a name.
        ("./python3", json!(["python3"]), Err(DENIED)),
        ("bin/python3", json!(["python3"]), Err(DENIED)),
        ("/workspace/python3", json!(["python3"]), Err(DENIED)),
        ("../usr/bin/python3", json!(["python3"]), Err(DENIED)),
        // A path matches if the program was found there or is the same file.
        ("python3", json!([{"path": "/usr/bin/python3"}]), Ok("/usr/bin/python3")),
        ("python3", json!([{"path": "/bin/python3"}]), Ok("/usr/bin/python3")),
        ("python3", json!([{"path": "/usr/bin/python3.11"}]), Ok("/usr/bin/python3")),
        ("/opt/link", json!([{"path": "/usr/bin/python3"}]), Ok("/opt/link")),
        ("python3", json!([{"path": "/usr/bin/node"}]), Err(DENIED)),
        ("/opt/tool/bin/tool", json!([{"path": "/opt/tool/bin/tool"}]), Ok("/opt/tool/bin/tool")),
        ("tool", json!([{"path": "/opt/tool/bin/tool"}]), Err(DENIED)),
        ("tool", json!([{"path": "/usr/../usr/bin/tool"}]), Err(DENIED)),
        // If an entry has a name and a path, both must match.
        ("python", pinned.clone(), Ok("/usr/bin/python")),
        ("python3", pinned.clone(), Err(DENIED)),
        ("/opt/tool/bin/python", pinned, Err(DENIED)),
        ("tool", json!([{"basename": "tool", "path": "/opt/tool/bin/tool"}]), Err(DENIED)),
        // A path of a multi-call program matches only that name.
        ("ls", json!([{"path": "/bin/ls"}]), Ok("/usr/bin/ls")),
        ("ash", json!([{"path": "/usr/bin/busybox"}]), Err(DENIED)),
        ("coreutils", json!([{"path": "/usr/bin/tac"}]), Err(DENIED)),
        ("tac", json!([{"path": "/bin/tac"}]), Ok("/usr/bin/tac")),
        ("/", json!([{"path": "/"}]), Err(DENIED)),
        (".", json!(["."]), Err(DENIED)),
        ("..", json!([".."]), Err(DENIED)),
    ] {
        let expected = expected.map(|path| Some(path.to_owned()));
        assert_eq!(path_of(argv0, &commands), expected, "{argv0} {commands}");
    }
}

#[test]
fn a_name_outside_the_path_is_found_by_the_path_of_its_entry() {
    let pinned = |path: &str| json!([{"basename": "py", "path": path}]);
    assert_eq!(path_of("py", &pinned("/usr/bin/python3")), Ok(Some("/usr/bin/python3".to_owned())));
    assert_eq!(path_of("py", &pinned("/usr/bin/missing")), Ok(None));
    assert_eq!(path_of("py", &json!([{"path": "/usr/bin/python3"}])), Err(DENIED));
    let second =
        json!([{"basename": "py", "path": "/no"}, {"basename": "py", "path": "/opt/link"}]);
    assert_eq!(path_of("py", &second), Ok(Some("/opt/link".to_owned())));
    // As in the example of the schema, on a system without `python`.
    let wrong = json!([{"basename": "py", "path": "/usr/bin/python3", "sha256": "0".repeat(64)}]);
    let error = outcome_of(&request(&["py"], &wrong)).error.unwrap();
    assert_eq!((error.code.word(), &error.details["pin"]), (DENIED, &json!("sha256")));
}

#[test]
fn an_allowed_command_that_does_not_exist_is_allowed() {
    for (argv0, commands) in [
        ("missing", json!(["missing"])),
        ("/usr/bin/missing", json!(["missing"])),
        ("/opt/missing", json!([{"path": "/opt/missing"}])),
        ("/opt/missing", json!([{"path": "/opt/missing", "sha256": "0".repeat(64)}])),
    ] {
        assert_eq!(path_of(argv0, &commands), Ok(None), "{argv0} {commands}");
    }
    assert_eq!(path_of("missing", &json!(["python3"])), Err(DENIED));
    assert_eq!(path_of("/opt/missing", &json!(["missing"])), Err(DENIED));
}

#[test]
fn the_digest_of_an_entry_is_compared_and_passed_on() {
    let right = digest_of("/usr/bin/python3.11");
    let entry = |sha256: &str| json!({"basename": "python3", "sha256": sha256});
    let good = outcome_of(&request(&["python3"], &json!([entry(right.as_str())])));
    let command = good.command.unwrap();
    assert_eq!((command.pinned, command.location), (vec![right.clone()], CommandLocation::Root));
    assert_eq!(command.program.unwrap().sha256, right);
    // One entry that matches is enough.
    let several = json!([entry(&"0".repeat(64)), entry(right.as_str())]);
    assert_eq!(outcome_of(&request(&["python3"], &several)).error, None);
    let plain = outcome_of(&request(&["python3"], &json!(["python3"]))).command.unwrap();
    assert_eq!(plain.pinned, []);
}

#[test]
fn the_error_names_the_command_and_the_closest_mismatch() {
    let digest = digest_of("/usr/bin/python3.11");
    let wrong = "0".repeat(64);
    let by_path = json!({"basename": "python3", "path": "/usr/bin/node"});
    let by_digest = json!({"path": "/usr/bin/python3", "sha256": wrong});
    for (commands, details) in [
        (json!(["node"]), json!({"argv0": "python3"})),
        (json!([{"path": "/usr/bin/node"}]), json!({"argv0": "python3"})),
        (
            json!(["node", by_path]),
            json!({"argv0": "python3", "pin": "path", "expected": "/usr/bin/node", "actual": "/usr/bin/python3"}),
        ),
        (
            json!([by_digest, by_path]),
            json!({"argv0": "python3", "pin": "sha256", "expected": wrong, "actual": digest.as_str()}),
        ),
        (
            json!([by_path, by_digest]),
            json!({"argv0": "python3", "pin": "sha256", "expected": wrong, "actual": digest.as_str()}),
        ),
    ] {
        let error = outcome_of(&request(&["python3"], &commands)).error.unwrap();
        assert_eq!(error.code.word(), DENIED, "{commands}");
        assert_eq!(error.message, "command is not allowed by policy");
        assert_eq!(Value::Object(error.details), details, "{commands}");
    }
}

#[test]
fn a_file_of_the_workspace_is_allowed_only_by_its_path() {
    let entry = json!([{"path": "/workspace/bin/tool"}]);
    for (argv0, cwd, commands, expected) in [
        ("bin/tool", ".", entry.clone(), Some("bin/tool")),
        ("./bin/tool", ".", entry.clone(), Some("bin/tool")),
        ("./tool", "bin", entry.clone(), Some("bin/tool")),
        ("../bin/tool", "sub", entry.clone(), Some("bin/tool")),
        ("/workspace/bin/tool", "sub", entry.clone(), Some("bin/tool")),
        ("./bin/tool", "sub", entry.clone(), None),
        ("../../workspace/bin/tool", "sub", entry.clone(), None),
        ("tool", "bin", entry, None),
        ("./tool", ".", json!(["tool", {"path": "/usr/bin/tool"}]), None),
        ("./tool", ".", json!([{"path": "/workspace/sub/../tool"}]), None),
        ("./tool", ".", json!([{"basename": "x", "path": "/workspace/tool"}]), None),
        ("./tool", ".", json!([{"basename": "tool", "path": "/workspace/tool"}]), Some("tool")),
        ("mine", ".", json!([{"basename": "mine", "path": "/workspace/a"}]), Some("a")),
    ] {
        let mut request = request(&[argv0], &commands);
        request.command.cwd = cwd.to_owned();
        let outcome = outcome_of(&request);
        let place = outcome.command.as_ref().map(|command| command.location.clone());
        let file = expected.map(|path| CommandLocation::Workspace(RelPath::parse(path).unwrap()));
        assert_eq!(place, file, "{argv0} in {cwd}, {commands}");
        let code = if expected.is_some() { "allowed" } else { DENIED };
        assert_eq!(verdict(&outcome), code, "{argv0} in {cwd}, {commands}");
    }
}

#[test]
fn all_digests_of_entries_for_a_file_of_the_workspace_are_passed_on() {
    let (one, other) = (digest_of("1"), digest_of("2"));
    let entry = |sha256: &str| json!({"path": "/workspace/tool", "sha256": sha256});
    let pinned =
        |commands: Value| outcome_of(&request(&["./tool"], &commands)).command.unwrap().pinned;
    let both = json!([entry(one.as_str()), entry(other.as_str())]);
    assert_eq!(pinned(both.clone()), [one, other]);
    let mut with_any = both.as_array().unwrap().clone();
    with_any.push(json!({"path": "/workspace/tool"}));
    assert_eq!(pinned(Value::Array(with_any)), []);
}

#[test]
fn fake_programs_are_looked_up_in_the_order_of_the_path() {
    assert_eq!(usual().find("foo").unwrap().unwrap().target, "/usr/bin/bash");
    assert_eq!(usual().find("/bin/sh").unwrap().unwrap().target, "/usr/bin/dash");
}
