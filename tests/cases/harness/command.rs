//! Agents with a command line, and harnesses without an agent.

use std::time::Instant;

use cofferdam::cases::HarnessFault;

use super::stage::{Stage, content};
use crate::conformance::doors::WITHOUT_IMAGE;

const TASK: &str = "
task: {prompt: 'Mend $HOME; {model}', system_prompt: Be brief., instruction_files: [AGENTS.md]}
";
const WHOLE: &str = "Be brief.\n\nMend $HOME; {model}\n\n## AGENTS.md\n\nNo tabs.\n";

#[test]
fn an_agent_gets_its_prompt_model_and_variables() {
    let Some(stage) = Stage::new() else { return };
    std::fs::write(stage.directory().join("AGENTS.md"), "No tabs.\n").unwrap();
    let script = "printf %s \"$1\" > as-word; cat \"$2\" > as-file; \
        printf '%s %s %s' \"$3\" \"$PROVISIONED\" \"$OWN\" > rest; cd \"$4\" && ls > list; \
        printf %s \"$2\" > place; echo out; echo err >&2; exit 3";
    let yaml = format!(
        "{TASK}harnesses:\n  mine:\n    kind: command\n    env: {{OWN: '1'}}\n    argv: [sh, -c, {}, x, '{{prompt}}', '{{prompt_file}}', 'model={{model}}', '{{sandbox}}']\n",
        serde_json::to_string(script).unwrap()
    );
    for kind in WITHOUT_IMAGE {
        let cell = stage.scene.started(kind, "");
        let end = stage.work(cell.as_ref(), &yaml, "mine").unwrap();
        assert_eq!((end.agent.outcome, end.agent.exit_code), ("exited", Some(3)), "{kind:?}");
        assert_eq!(end.output, "out\nerr\n", "{kind:?}");
        for (file, wanted) in
            [("as-word", WHOLE), ("as-file", WHOLE), ("rest", "model=m by the environment 1")]
        {
            assert_eq!(content(cell.as_ref(), file).as_deref(), Some(wanted), "{kind:?} {file}");
        }
        let list = content(cell.as_ref(), "list").unwrap();
        assert!(list.contains("kept.txt") && !list.contains("prompt"), "{kind:?}: {list}");
        let place = content(cell.as_ref(), "place").unwrap();
        assert!(place.ends_with("-prompt.md") && cell.get(&place).is_ok(), "{kind:?}: {place}");
        cell.stop();
    }
}

#[test]
fn an_agent_that_is_late_or_missing_has_an_end() {
    let Some(stage) = Stage::new() else { return };
    let yaml = "
harnesses:
  late: {kind: command, argv: [sh, -c, 'echo begun; sleep 60']}
  missing: {kind: command, argv: [no-such-agent]}
";
    let cell = stage.local();
    let started = Instant::now();
    let end = stage.work_for(cell.as_ref(), yaml, "late", 1.0).unwrap();
    assert_eq!((end.agent.outcome, end.agent.exit_code), ("timed_out", None));
    assert_eq!(end.output, "begun\n");
    assert!(started.elapsed().as_secs() < 30);
    let end = stage.work(cell.as_ref(), yaml, "missing").unwrap();
    assert_eq!((end.agent.outcome, end.agent.exit_code), ("exited", Some(127)));
}

#[test]
fn what_the_agent_has_no_part_in_is_an_error() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let long = format!(
        "task: {{prompt: {}}}\nharnesses: {{mine: {{kind: command, argv: [echo, '{{prompt}}']}}}}\n",
        "x".repeat(200_000)
    );
    let missing = "task: {prompt: p}\nharnesses: {mine: {kind: openai, api_key_env: NO_SUCH}}\n";
    for (yaml, name, words) in [
        (long.as_str(), "mine", "too long"),
        (missing, "mine", "the variable NO_SUCH is not set"),
        ("", "aider", "does not define the harness 'aider'"),
        ("harnesses: {j: {kind: job, command: {argv: [a]}}}\n", "j", "jobs cannot be run"),
    ] {
        let error = stage.work(cell.as_ref(), yaml, name).unwrap_err();
        assert!(error.message.contains(words), "{error}");
        assert_eq!(error.fault, HarnessFault::Failed);
    }
    cell.stop();
    let yaml = "harnesses: {mine: {kind: command, argv: ['true']}}\n";
    assert!(stage.work(cell.as_ref(), yaml, "mine").is_err());
}

#[test]
fn an_oracle_runs_its_commands_until_one_fails() {
    let Some(stage) = Stage::new() else { return };
    let cell = stage.local();
    let yaml = "oracle: {run: ['echo one > 1', 'echo said; exit 4', 'echo three > 3']}\n";
    let end = stage.work(cell.as_ref(), yaml, "oracle").unwrap();
    assert_eq!((end.agent.exit_code, end.output.as_str()), (Some(4), "said\n"));
    assert_eq!(content(cell.as_ref(), "1").as_deref(), Some("one\n"));
    assert_eq!(content(cell.as_ref(), "3"), None);
    let end = stage.work(cell.as_ref(), "", "nop").unwrap();
    assert_eq!((end.agent.outcome, end.agent.exit_code), ("exited", Some(0)));
}
