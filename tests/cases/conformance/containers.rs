//! What only Cells in containers have: root's setup, images, and an engine that may be missing or fail.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::unistd::geteuid;
use serde_json::{Value, json};

use cofferdam::cases::{
    CellSettings, ContainerCell, ContainerSettings, ExecCode, ExecRequest, Executor, StepAccess,
};
use cofferdam::egress::rules::WithheldValues;
use cofferdam::egress::secret::Placeholders;
use cofferdam::egress::{AllowList, EgressGrant, EgressTerms};
use cofferdam_core::NetworkObject;
use cofferdam_core::sync::cancel::CancelToken;

use super::doors::{Scene, alive_with, binary, by_library};
use super::engine::IMAGE;
use super::{exited, has};

/// Stands in the command line of processes that must not survive.
const MARKER: &str = "8642.1357924";
/// How long the end of all that a killed supervisor has may take.
const END_WAIT: Duration = Duration::from_secs(120);

fn cell(settings: ContainerSettings) -> ContainerCell {
    ContainerCell::new(settings, CancelToken::new().unwrap())
}

fn shell(cell: &ContainerCell, command: &str) -> Value {
    by_library(cell, &ExecRequest::new(["sh", "-c", command]))
}

#[track_caller]
fn prints(cell: &ContainerCell, command: &str, wanted: &str) {
    let found = shell(cell, command);
    assert!(has(&found, &exited(0, wanted)), "{command}: {found}");
}

#[track_caller]
fn assert_nothing_left(scene: &Scene) {
    assert_eq!(scene.engine().unwrap().left(), "");
    assert!(scene.left_of_cells().is_empty(), "{:?}", scene.left_of_cells());
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let cells = scene.cells();
    assert!(!mounts.contains(cells.to_str().unwrap()), "{mounts}");
}

#[test]
fn setup_is_roots_once_and_in_order_and_nothing_else_is() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let block = format!(
        "container:\n  image: {IMAGE}\n  setup:\n  - echo one > /log; grep CapEff /proc/self/status | cut -f2 > /caps\n  - echo two >> /log; touch made; chmod 4755 made; pwd > /where\n"
    );
    let cell = cell(scene.container_settings(CellSettings::default(), &block));
    cell.start().unwrap();
    prints(&cell, "cat /log", "one\ntwo\n");
    prints(&cell, "grep -c '^0*$' /caps || true", "0\n");
    prints(
        &cell,
        "[ \"$(cat /where)\" = \"$PWD\" ] && stat -c '%a %u' made",
        &format!("755 {}\n", geteuid()),
    );
    prints(
        &cell,
        "grep -E '^(CapEff|CapBnd|NoNewPrivs)' /proc/self/status | cut -f2 | tr '\\n' ' '",
        "0000000000000000 0000000000000000 1 ",
    );
    cell.stop();
    assert_nothing_left(&scene);
}

#[test]
fn a_setup_that_fails_fails_the_start_and_leaves_nothing() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let block = format!(
        "container: {{image: '{IMAGE}', setup: ['true', 'echo a; echo b >&2; exit 3', 'echo never']}}\n"
    );
    let cell = cell(scene.container_settings(CellSettings::default(), &block));
    let error = cell.start().unwrap_err();
    assert_eq!(error.code, ExecCode::BackendFailed);
    assert_eq!(error.message, "container setup failed: echo a; echo b >&2; exit 3");
    assert_eq!(
        (error.details["tail"].as_str(), error.details["outcome"].as_str()),
        ("a\nb\n", "exited")
    );
    assert_eq!(cell.run(&ExecRequest::new(["true"])).unwrap_err().code, ExecCode::NotStarted);
    assert_nothing_left(&scene);
}

#[test]
fn the_case_is_shown_read_only_until_the_container_is_committed() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let shown = scene.cells().parent().unwrap().join("shown");
    fs::create_dir(&shown).unwrap();
    fs::write(shown.join("wheel"), "w\n").unwrap();
    let settings = CellSettings { case_dir: Some(shown.clone()), ..CellSettings::default() };
    let cell = cell(scene.container_settings(settings, ""));
    cell.start().unwrap();
    let case = shown.display();
    let mut request = ExecRequest::new(["sh", "-c", "cat $CASE_DIR/wheel; echo $CASE_DIR"]);
    request.access = StepAccess { shows_case: true, egress: None };
    let found = by_library(&cell, &request);
    assert!(has(&found, &exited(0, &format!("w\n{case}\n"))), "{found}");
    prints(&cell, "echo \"$CASE_DIR\"", "\n");
    prints(&cell, &format!("echo x 2>/dev/null > {case}/x || echo refused"), "refused\n");
    prints(&cell, "echo kept > /home/kept; echo cell > here", "");
    cell.commit().unwrap();
    prints(&cell, &format!("cat /home/kept here; ls -A {case}"), "kept\ncell\n");
    prints(&cell, "echo agent > /home/kept; echo agent > /tmp/agent; echo agent > here", "");
    cell.renew().unwrap();
    prints(
        &cell,
        "cat /home/kept here; ls /tmp/agent 2>/dev/null || echo gone",
        "kept\nagent\ngone\n",
    );
    cell.stop();
    assert_eq!(fs::read_to_string(shown.join("wheel")).unwrap(), "w\n");
    assert_nothing_left(&scene);
}

#[test]
fn a_command_reaches_neither_the_helper_nor_its_pipe() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let cell = cell(scene.container_settings(CellSettings::default(), ""));
    cell.start().unwrap();
    prints(
        &cell,
        "kill -9 1; kill -STOP 1; kill -TERM 1; kill -SEGV 1; kill -9 -1; echo alive",
        "alive\n",
    );
    for attempt in
        ["cat /proc/1/environ", "readlink /proc/1/fd/0", "cat /proc/1/mem", "echo >/proc/1/fd/1"]
    {
        prints(&cell, &format!("({attempt}) 2>/dev/null || echo refused"), "refused\n");
    }
    prints(&cell, "echo 2>/dev/null > /.cofferdam || echo refused", "refused\n");
    let began = Instant::now();
    let mut late = ExecRequest::new(["sh", "-c", "yes & (setsid sleep 1000 &); sleep 1000"]);
    late.timeout = Duration::from_millis(500);
    let found = by_library(&cell, &late);
    assert!(has(&found, &json!({"outcome": "timed_out"})), "{}", found["outcome"]);
    assert!(found["stdout"]["bytes"].as_u64() > Some(0));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    prints(&cell, "ps -o comm | grep -cE 'yes|sleep'; true", "0\n");
}

/// A server that answers each request with so many bytes, and a grant for it.
fn server(body_bytes: usize) -> (u16, EgressGrant) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {body_bytes}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(&[head.as_bytes(), &vec![b'x'; body_bytes]].concat());
        }
    });
    let private_hosts = AllowList::parse(&["127.0.0.1".to_owned()]).unwrap();
    let terms = EgressTerms { private_hosts, bytes_max: 64 << 20, ..EgressTerms::default() };
    let object = NetworkObject::of_hosts(vec![format!("127.0.0.1:{port}")]);
    let withheld = WithheldValues::Refused;
    let network = terms.network(&object, "", &Placeholders::default(), withheld).unwrap();
    (port, terms.grant(network, terms.log(), None))
}

#[test]
fn a_command_reaches_the_proxy_only_while_it_may() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let cell = cell(scene.container_settings(CellSettings::default(), ""));
    cell.start().unwrap();
    let (port, grant) = server(3 << 20);
    let proxied = format!("http_proxy=http://127.0.0.1:3128 wget -q -O - http://127.0.0.1:{port}/");
    let refused = format!("{proxied} 2>/dev/null | wc -c");
    prints(&cell, &refused, "0\n");
    let two = format!(
        "({proxied} | wc -c) & {proxied} | wc -c; wait; wget -q -O - http://127.0.0.1:1/ 2>/dev/null || echo denied"
    );
    let mut request = ExecRequest::new(["sh", "-c", &two]);
    request.access = StepAccess { shows_case: false, egress: Some(grant.clone()) };
    let found = by_library(&cell, &request);
    assert!(has(&found, &exited(0, "3145728\n3145728\ndenied\n")), "{found}");
    assert_eq!(grant.records().len(), 3);
    prints(&cell, &refused, "0\n");
}

#[test]
fn the_programs_of_the_environment_come_before_those_of_the_image() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let block = format!("container: {{image: '{IMAGE}', env_passthrough: [PASSED]}}\n");
    let mut settings = scene.container_settings(CellSettings::default(), &block);
    settings.host.variables = [("PASSED".to_owned(), "p".to_owned())].into();
    let cell = cell(settings);
    cell.start().unwrap();
    let env = cell.describe().unwrap().env;
    let mut request = ExecRequest::new(["sh", "-c", "echo $PATH $PASSED"]);
    let path = format!("{}/bin:/of/the/host", env.display());
    request.env = [("PATH".to_owned(), Some(path))].into();
    let found = by_library(&cell, &request);
    let wanted = format!("{}/bin:/bin p\n", env.display());
    assert!(has(&found, &exited(0, &wanted)), "{found}");
}

#[test]
fn a_killed_supervisor_leaves_nothing() {
    let Some(scene) = Scene::new().filter(|scene| scene.engine().is_some()) else { return };
    let engine = scene.engine().unwrap();
    let block = format!("container: {{image: '{IMAGE}', setup: ['echo a > /a'], caches: [.m2]}}\n");
    let mut supervisor = Command::new(binary())
        .args(["case", "exec"])
        .arg(scene.case(&block))
        .args(["--", "sh", "-c", &format!("setsid sleep {MARKER} & sleep {MARKER}; true")])
        .env("TMPDIR", scene.cells())
        .env("PATH", engine.search_path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    // Two processes, and the command line of the supervisor.
    while alive_with(MARKER).len() < 3 {
        assert!(supervisor.try_wait().unwrap().is_none() && began.elapsed() < END_WAIT);
        thread::sleep(Duration::from_millis(50));
    }
    supervisor.kill().unwrap();
    supervisor.wait().unwrap();
    let began = Instant::now();
    let is_left = || {
        !alive_with(MARKER).is_empty()
            || !engine.left().is_empty()
            || !scene.left_of_cells().is_empty()
    };
    while is_left() {
        assert!(began.elapsed() < END_WAIT, "{} {:?}", engine.left(), alive_with(MARKER));
        thread::sleep(Duration::from_millis(200));
    }
    assert_nothing_left(&scene);
}

/// A program `docker` in `place` that writes down how it is called, and answers `image inspect`.
fn recorded_docker(place: &Path) {
    let script = format!(
        "#!/bin/sh\necho \"$*\" >> {}/calls\ncase \"$1\" in\nimage) echo '[{{\"Id\": \"sha256:1\", \"Config\": {{\"Env\": null}}}}]' ;;\nrun) echo 'docker: no such runtime' >&2; exit 125 ;;\nesac\n",
        place.display()
    );
    fs::create_dir(place.join("docker")).unwrap();
    let program = place.join("docker/docker");
    fs::write(&program, script).unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn docker_gets_the_same_container_and_its_failure_leaves_nothing() {
    let Some(scene) = Scene::new() else { return };
    let place = scene.cells().parent().unwrap().to_owned();
    recorded_docker(&place);
    let mut settings = scene.container_settings(CellSettings::default(), "");
    settings.host.search_path = place.join("docker").into();
    let error = cell(settings).start().unwrap_err();
    assert_eq!(error.code, ExecCode::BackendFailed);
    assert_eq!(error.details["tail"], "docker: no such runtime");
    let calls = fs::read_to_string(place.join("calls")).unwrap();
    let calls: Vec<_> = calls.lines().collect();
    let begins = [
        "version --format {{.Server.Version}}",
        "image inspect localhost/cofferdam-cases:test",
        "run --rm --interactive --name cofferdam-cell-",
        "rm --force --volumes cofferdam-cell-",
        "rmi --force localhost/cofferdam-cell-",
    ];
    assert_eq!(calls.len(), begins.len(), "{calls:?}");
    for (call, begin) in calls.iter().zip(begins) {
        assert!(call.starts_with(begin), "{call}");
    }
    for part in [
        "--pull never",
        "--network none",
        "--cap-drop ALL --security-opt no-new-privileges",
        "--memory 2147483648 --memory-swap 2147483648 --pids-limit 512",
        " sha256:1 cell-container",
    ] {
        assert!(calls[2].contains(part), "{part}: {}", calls[2]);
    }
    assert_eq!(fs::read_dir(scene.cells()).unwrap().count(), 0);
}

#[test]
fn an_engine_or_an_image_that_is_missing_fails_the_start() {
    let Some(scene) = Scene::new() else { return };
    let mut settings = scene.container_settings(CellSettings::default(), "");
    settings.host.search_path = "/no/such/directory".into();
    let error = cell(settings).start().unwrap_err();
    assert_eq!(error.code, ExecCode::BackendUnavailable);
    assert_eq!(error.message, "container: no podman, no docker on PATH");
    if scene.engine().is_some() {
        let block = "container: {image: 'localhost/no-such-image'}\n";
        let error = cell(scene.container_settings(CellSettings::default(), block)).start();
        let error = error.unwrap_err();
        assert_eq!(error.code, ExecCode::BackendFailed);
        let words = "image: the container image \"localhost/no-such-image\" cannot be fetched";
        assert_eq!(error.message, words);
        assert_nothing_left(&scene);
    }
    assert_eq!(fs::read_dir(scene.cells()).unwrap().count(), 0);
}
