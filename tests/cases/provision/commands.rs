//! Commands of a Case, errors and time.

use std::fs;
use std::time::{Duration, Instant};

use cofferdam::cases::{CellExecutorKind, Executor};

use super::scene::{EXECUTORS, Scene};

#[test]
fn commands_alone_see_the_variables_of_the_case_and_make_no_virtual_environment() {
    let Some(scene) = Scene::new() else { return };
    let block = "{kind: command, commands: ['echo $A:$VIRTUAL_ENV > made', 'echo more >> made'], env: {A: '1'}}";
    let environment = scene.environment(block);
    for executor in EXECUTORS {
        let cell = scene.cell(executor);
        let made = cell.provision(&environment, &[]).unwrap();
        assert_eq!(made.env, [("A".to_owned(), Some("1".to_owned()))].into());
        assert_eq!(cell.get("made").unwrap(), b"1:\nmore\n");
    }
}

#[test]
fn commands_run_last_and_in_the_virtual_environment() {
    let Some(scene) = Scene::new() else { return };
    let block = "{kind: uv, commands: ['python -c \"import sys; print(sys.prefix)\" > made'], env: {PYTHONPATH: x}}";
    let environment = scene.environment(block);
    for executor in EXECUTORS {
        let cell = scene.cell(executor);
        let made = cell.provision(&environment, &[]).unwrap();
        assert_eq!(made.env["PYTHONPATH"].as_deref(), Some("x"));
        let env = cell.places().env.display().to_string();
        assert_eq!(String::from_utf8(cell.get("made").unwrap()).unwrap().trim(), env);
    }
}

#[test]
fn the_error_of_a_command_has_its_text_and_the_end_of_its_output() {
    let Some(scene) = Scene::new() else { return };
    let command = "seq 1 2000; echo last; echo wrong >&2; exit 3";
    let block = format!("{{kind: command, commands: ['true', '{command}', 'touch never']}}");
    let environment = scene.environment(&block);
    for executor in EXECUTORS {
        let cell = scene.cell(executor);
        let error = cell.provision(&environment, &[]).unwrap_err();
        assert_eq!(error.code(), "provision.failed");
        assert_eq!(error.to_string(), format!("environment command failed: {command}"));
        assert!(error.tail().ends_with("2000\nlast\nwrong\n"), "{}", error.tail());
        assert_eq!(error.tail().chars().count(), 2000);
        assert!(cell.get("never").is_err());
    }
}

#[test]
fn a_requirement_that_is_nowhere_fails_with_the_words_of_the_tool() {
    let Some(scene) = Scene::new() else { return };
    let block = "{requirements: [no-such-thing], pip_args: [--no-index]}";
    let environment = scene.environment(block);
    let cell = scene.cell(CellExecutorKind::Sandboxed);
    let error = cell.provision(&environment, &[]).unwrap_err();
    let pip =
        "/env/bin/python -m pip install --disable-pip-version-check -q --no-index no-such-thing";
    assert_eq!(error.to_string(), format!("environment provisioning failed: {pip}"));
    assert!(error.tail().contains("no-such-thing"), "{}", error.tail());
}

#[test]
fn the_time_is_that_of_all_commands_together() {
    let Some(scene) = Scene::new() else { return };
    let block = "{kind: command, commands: [sleep 1, sleep 1, sleep 60], timeout_s: 2}";
    let environment = scene.environment(block);
    for executor in EXECUTORS {
        let cell = scene.cell(executor);
        let began = Instant::now();
        let error = cell.provision(&environment, &[]).unwrap_err();
        let took = began.elapsed();
        assert_eq!(error.code(), "provision.timed_out");
        let message = "environment command failed: sleep 1: the step is out of time (2 s)";
        assert_eq!(error.to_string(), message);
        assert!(took >= Duration::from_secs(2) && took < Duration::from_secs(10), "{took:?}");
    }
}

#[test]
fn an_executor_without_uv_is_an_error_that_names_it() {
    let Some(scene) = Scene::new() else { return };
    let environment = scene.environment("{kind: uv}");
    let cell = scene.cell(CellExecutorKind::Sandboxed);
    let error = cell.provision(&environment, &[("PATH", "/nowhere")]).unwrap_err();
    let argv = "uv venv --clear --python python3 /env";
    let message = format!("environment provisioning failed: {argv}: the executor has no 'uv'");
    assert_eq!((error.code(), error.to_string()), ("provision.failed", message));
}

#[test]
fn certificates_of_this_host_are_seen_in_every_cell() {
    let Some(scene) = Scene::new() else { return };
    let path = scene.path("ca.pem");
    fs::write(&path, "certificates\n").unwrap();
    let environment = scene.environment("{kind: command, commands: ['cat $PIP_CERT > seen']}");
    for executor in EXECUTORS {
        let cell = scene.cell(executor);
        let made = cell.provision(&environment, &[("PIP_CERT", path.to_str().unwrap())]).unwrap();
        assert_eq!(cell.get("seen").unwrap(), b"certificates\n");
        assert!(made.env.is_empty());
    }
}
