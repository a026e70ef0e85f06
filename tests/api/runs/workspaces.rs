//! Which workspace a request runs in, and what happens if the workspace does not resolve.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use cofferdam_test_server::client::solution;
use cofferdam_test_server::service::{Service, Setup, cofferdam};
use cofferdam_test_server::workspace::{Workspace, makefile};
use serde_json::json;

const UNAVAILABLE: &str = r#"{"error":"language unavailable"}"#;
/// Makefiles that do not resolve to a command, and a word that the reason must contain.
const UNRESOLVABLE: [(&str, &str, &str); 6] = [
    ("no target", "all:\n\techo hi\n", "test"),
    ("an error", "test:\n\techo $(error too old)\n", "too old"),
    ("no recipe", "test:\n", "test"),
    ("an empty recipe", ".PHONY: test\ntest:\n\t\n", "test"),
    ("up to date", "test: Makefile\n", "test"),
    ("not a Makefile", "\"\n\techo\n", "Makefile"),
];
/// A table of languages that need only a shell.
const TABLE: &str = r#"
[alpha]
folder = "check"
solution = "solution.sh"
requires = ["sh"]
version = ["echo", "1"]

[beta]
folder = "check"
solution = "solution.sh"
requires = [["no-such-toolchain", "sh"]]
version = ["echo", "1"]

[gamma]
folder = "check"
solution = "solution.sh"
requires = ["no-such-toolchain"]
version = ["no-such-toolchain", "--version"]
"#;

/// A directory of workspaces that each print their own name.
fn languages() -> Workspace {
    let langs = Workspace::empty().with("languages.toml", TABLE);
    for slug in ["alpha", "beta", "gamma"] {
        langs.put(&format!("{slug}/Makefile"), &makefile(&[&format!("echo {slug}")]));
    }
    langs
}

fn run(service: &Service, slug: &str) -> cofferdam_test_server::client::Answer {
    let mut body = solution("");
    body["lang_slug"] = slug.into();
    service.post(&body)
}

#[test]
fn one_workspace_serves_every_slug() {
    let workspace = Workspace::running(&["echo one"]);
    let other = Workspace::running(&["echo other"]);
    let elsewhere = Workspace::empty();
    let by_flag = || Setup::inside(elsewhere.path()).arg("--workspace").arg(workspace.path());
    for setup in [
        by_flag(),
        Setup::inside(elsewhere.path()).env("RUN_WORKSPACE", workspace.path()),
        by_flag().env("RUN_WORKSPACE", other.path()),
        by_flag().env("LANGS_DIR", other.path()),
        Setup::inside(workspace.path()),
    ] {
        let service = setup.start();
        for slug in ["python", "ruby", "ts"] {
            assert_eq!(run(&service, slug).stdout(), "one\n");
        }
    }
}

#[test]
fn each_slug_has_a_workspace_of_its_name() {
    let (langs, elsewhere) = (languages(), Workspace::empty());
    let nearby = Workspace::running(&["echo nearby"]);
    fs::rename(languages().path(), nearby.path().join("langs")).unwrap();
    for setup in [
        Setup::inside(elsewhere.path()).arg("--langs").arg(langs.path()),
        Setup::inside(elsewhere.path()).env("LANGS_DIR", langs.path()),
        Setup::inside(nearby.path()),
    ] {
        let service = setup.start();
        assert_eq!(run(&service, "alpha").stdout(), "alpha\n");
        assert_eq!(run(&service, "beta").stdout(), "beta\n");
        run(&service, "python").assert_json(400, r#"{"error":"unsupported lang_slug"}"#);
    }
}

#[test]
fn without_configured_workspaces_the_service_uses_the_embedded_ones() {
    let empty = Workspace::empty();
    let service = Setup::inside(empty.path()).start();
    let answer = service.post(&json!({
        "lang_slug": "python",
        "solution_text": "def solution(a, b):\n    return a + b\n",
        "asserts": "{\"arguments\": [[40, 2]]}",
    }));
    assert!(answer.stdout().contains("\"value\": 42"), "{}", answer.stdout());
    run(&service, "cobol").assert_json(400, r#"{"error":"unsupported lang_slug"}"#);
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}

#[test]
fn a_relative_directory_is_resolved_from_the_servers_working_directory() {
    let parent = Workspace::empty();
    fs::rename(languages().path(), parent.path().join("mine")).unwrap();
    parent.put("one/Makefile", &makefile(&["echo one"]));
    let service = Setup::inside(parent.path()).arg("--langs").arg("mine").start();
    assert_eq!(run(&service, "alpha").stdout(), "alpha\n");
    drop(service);
    let service = Setup::inside(parent.path()).env("RUN_WORKSPACE", "./one").start();
    assert_eq!(run(&service, "ruby").stdout(), "one\n");
}

#[test]
fn a_single_workspace_that_does_not_resolve_prevents_the_start() {
    let (code, said) = Setup::of(Workspace::empty()).refused();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert!(said.contains("Makefile"), "{said}");
    let (code, said) =
        Setup::of(Workspace::empty()).arg("--workspace").arg("/no/such/directory").refused();
    assert!(code.is_some_and(|code| code != 0), "{code:?}: {said}");
    for (name, text, reason) in UNRESOLVABLE {
        let (code, said) = Setup::of(Workspace::empty().with("Makefile", text)).refused();
        assert!(code.is_some_and(|code| code != 0), "{name}: {code:?}");
        assert!(said.contains(reason), "{name}: {said}");
    }
}

#[test]
fn without_make_the_start_fails_and_says_so() {
    let (code, said) = Setup::shell().env("PATH", "/no/such/directory").refused();
    assert!(code.is_some_and(|code| code != 0), "{code:?}");
    assert!(said.contains("make"), "{said}");
}

#[test]
fn a_workspace_that_does_not_resolve_disables_only_its_own_slug() {
    let langs = languages();
    let service = Setup::inside(langs.path()).arg("--langs").arg(langs.path()).start();
    for (name, text, _) in UNRESOLVABLE {
        langs.put("alpha/Makefile", text);
        let answer = run(&service, "alpha");
        assert_eq!(answer.status, 503, "{name}: {answer:?}");
        answer.assert_json(503, UNAVAILABLE);
        assert_eq!(run(&service, "beta").stdout(), "beta\n");
    }
    fs::remove_dir_all(langs.path().join("alpha")).unwrap();
    run(&service, "alpha").assert_json(503, UNAVAILABLE);
}

#[test]
fn a_missing_toolchain_is_a_503_instead_of_exit_code_127() {
    let langs = languages();
    let service = Setup::inside(langs.path()).arg("--langs").arg(langs.path()).start();
    run(&service, "gamma").assert_json(503, UNAVAILABLE);
    assert_eq!(run(&service, "alpha").stdout(), "alpha\n");
}

#[test]
fn a_missing_toolchain_of_a_single_workspace_is_a_503() {
    // A language of the table that the test host does not have.
    let service = Setup::of(Workspace::running(&["swiftc check/solution.swift", "bb it"])).start();
    run(&service, "python").assert_json(503, UNAVAILABLE);
}

#[test]
fn a_toolchain_that_is_too_old_is_a_503_and_langs_reports_the_reason() {
    let language = |slug: &str, minimum: &str| {
        format!(
            "[{slug}]\nfolder = \"check\"\nsolution = \"solution.sh\"\nrequires = [\"sh\"]\n\
             version = [\"echo\", \"tool 1.14.0 (old)\"]\nminimum = \"{minimum}\"\n",
        )
    };
    let langs = Workspace::empty()
        .with("languages.toml", &[language("alpha", "1.14"), language("beta", "1.18")].concat());
    for slug in ["alpha", "beta"] {
        langs.put(&format!("{slug}/Makefile"), &makefile(&[&format!("echo {slug}")]));
    }
    let service = Setup::inside(langs.path()).arg("--langs").arg(langs.path()).start();
    for _ in 0..2 {
        run(&service, "beta").assert_json(503, UNAVAILABLE);
        assert_eq!(run(&service, "alpha").stdout(), "alpha\n");
    }
    let listed = Command::new(cofferdam()).arg("langs").arg("--langs").arg(langs.path()).output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    let reason = "tool 1.14.0 (old): too old; the workspace needs 1.18 or newer";
    assert!(listed.contains(reason), "{listed}");
}

#[test]
fn one_of_several_toolchains_is_enough() {
    let langs = languages();
    let service = Setup::inside(langs.path()).arg("--langs").arg(langs.path()).start();
    assert_eq!(run(&service, "beta").stdout(), "beta\n");
}

#[test]
fn a_changed_makefile_is_resolved_again() {
    let langs = languages();
    let service = Setup::inside(langs.path()).arg("--langs").arg(langs.path()).start();
    assert_eq!(run(&service, "alpha").stdout(), "alpha\n");
    langs.put("alpha/Makefile", &makefile(&["echo another word"]));
    assert_eq!(run(&service, "alpha").stdout(), "another word\n");
    drop(service);

    let service = Setup::of(Workspace::running(&["echo one"])).start();
    service.workspace().put("Makefile", &makefile(&["echo two words"]));
    assert_eq!(run(&service, "python").stdout(), "two words\n");
}

/// The environment in its original order, which a shell would change.
#[test]
fn a_plain_command_runs_without_a_shell() {
    let service = Setup::of(Workspace::running(&["env"])).start();
    let of_make = ["HOME=/tmp/home", "LANG=C.UTF-8", "PATH=", "PWD=/workspace", "TMPDIR=/tmp"];
    let answer = service.run("");
    let printed = answer.stdout();
    let names: Vec<&str> = printed.lines().collect();
    assert_eq!(names.len(), of_make.len(), "{names:?}");
    for (name, start) in names.iter().zip(of_make) {
        assert!(name.starts_with(start), "{names:?}");
    }
}

#[test]
fn a_plain_command_has_the_same_result_as_in_a_shell() {
    for plain in [
        "sort -o check/sorted Makefile",
        "ls no-such-file",
        "no-such-command --flag",
        "./no-such-file",
        "./not-executable",
        "./directory",
        "./Makefile/below",
        "./without-interpreter 1 2",
        "./of-no-such-interpreter",
    ] {
        let workspace = Workspace::running(&[plain])
            .with("not-executable", "echo never")
            .with("directory/file", "")
            .with("without-interpreter", "echo $0 $#; exit 3")
            .with("of-no-such-interpreter", "#!/no/such/interpreter\n");
        for script in ["without-interpreter", "of-no-such-interpreter"] {
            let script = workspace.path().join(script);
            fs::set_permissions(script, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let service = Setup::of(workspace).start();
        let without = service.run("");
        // The `;` makes the same command one that needs a shell.
        service.workspace().put("Makefile", &makefile(&[&format!("{plain};")]));
        let with = service.run("");
        assert_eq!(without.body, with.body, "{plain}");
        assert_eq!(without.header("x-run-outcome"), with.header("x-run-outcome"), "{plain}");
    }
}
