//! Virtual environments and what is installed into them.

use std::fs;
use std::thread;

use cofferdam::cases::CellExecutorKind;

use super::scene::{EXECUTORS, Scene, joined};

const TOOLS: [&str; 2] = ["pip-venv", "uv"];
/// Prints where a program of the environment finds its packages.
const IMPORT: &str =
    "python -c 'import sys, tiny, lumpy; print(sys.prefix, tiny.VERSION, lumpy.VERSION)'";

/// The beginning of an installation by the tool `kind` into the environment at `env`.
fn pip(kind: &str, env: &str) -> Vec<String> {
    let line = match kind {
        "uv" => format!("uv pip install --python {env}/bin/python -q"),
        _ => format!("{env}/bin/python -m pip install --disable-pip-version-check -q"),
    };
    line.split(' ').map(str::to_owned).collect()
}

fn make_venv(kind: &str, env: &str) -> Vec<String> {
    let line = match kind {
        "uv" => format!("uv venv --clear --python python3 {env}"),
        _ => format!("python3 -m venv --clear {env}"),
    };
    line.split(' ').map(str::to_owned).collect()
}

#[test]
fn wheels_and_sdists_come_from_the_configured_index_by_the_commands_of_the_contract() {
    let Some(scene) = Scene::new() else { return };
    scene.make("wheel", "tiny", "1.0", "index/simple/tiny");
    scene.make("sdist", "lumpy", "2.0", "index/simple/lumpy");
    fs::write(scene.path("case/more.txt"), "lumpy==2.0\n").unwrap();
    let index = scene.index();
    let variables = [("PIP_INDEX_URL", index.url.as_str()), ("UV_DEFAULT_INDEX", &index.url)];
    for kind in TOOLS {
        let block =
            format!("{{kind: {kind}, requirements: [tiny], requirement_files: [more.txt]}}");
        let environment = scene.environment(&block);
        let cell = scene.cell(CellExecutorKind::Local);
        let made = cell.provision(&environment, &variables).unwrap();
        let places = cell.places();
        let env = places.env.to_str().unwrap();
        assert_eq!(cell.printed(IMPORT, &made.env), format!("{env} 1.0 2.0"));
        assert_eq!(made.env["VIRTUAL_ENV"].as_deref(), Some(env));
        let words = |last: &[&str]| {
            let last = last.iter().map(ToString::to_string);
            pip(kind, env).into_iter().chain(last).collect::<Vec<_>>()
        };
        let file = joined(&places.case_dir, "more.txt");
        let wanted = [make_venv(kind, env), words(&["tiny"]), words(&["-r", &file])];
        let ran = cell.ran();
        assert_eq!(ran.iter().map(|(request, _)| request.argv.clone()).collect::<Vec<_>>(), wanted);
        assert!(ran.iter().all(|(request, _)| request.access.shows_case && !request.shell));
    }
}

#[test]
fn a_sandbox_has_its_environment_at_env_and_the_tools_print_nothing() {
    let Some(scene) = Scene::new() else { return };
    scene.make("wheel", "tiny", "1.0", "case/src/wheels");
    scene.make("sdist", "lumpy", "2.0", "case/src/wheels");
    for kind in TOOLS {
        let block = format!(
            "{{kind: {kind}, requirements: [tiny, lumpy], \
             pip_args: [--no-index, --find-links, /workspace/wheels]}}"
        );
        let environment = scene.environment(&block);
        let cell = scene.cell(CellExecutorKind::Sandboxed);
        let made = cell.provision(&environment, &[]).unwrap();
        assert_eq!(cell.printed(IMPORT, &made.env), "/env 1.0 2.0");
        assert_eq!(cell.printed("id -u; stat -c %u /env/bin/python", &made.env), "10001\n10001");
        assert_eq!(cell.printed("command -v python", &made.env), "/env/bin/python");
        for (request, result) in cell.ran() {
            let output = format!("{}{}", result.stdout.text, result.stderr.text);
            let is_silent = output.is_empty() || request.argv[1] == "venv";
            assert!(is_silent, "{:?}: {output}", request.argv);
        }
    }
}

#[test]
fn an_editable_source_below_src_is_found_from_everywhere() {
    let Some(scene) = Scene::new() else { return };
    scene.make("source", "own", "3.0", "case/src");
    for kind in TOOLS {
        let environment = scene.environment(&format!("{{kind: {kind}, install: editable}}"));
        for executor in EXECUTORS {
            let cell = scene.cell(executor);
            let made = cell.provision(&environment, &[]).unwrap();
            let sandbox = cell.printed("pwd", &made.env);
            let import = "cd / && python -c 'import own; print(own.__file__, own.VERSION)'";
            let wanted = format!("{sandbox}/src/own/__init__.py 3.0");
            assert_eq!(cell.printed(import, &made.env), wanted, "{kind} {executor:?}");
            let last = cell.ran().pop().unwrap().0;
            assert_eq!(
                (&last.argv[last.argv.len() - 2..], &last.cwd),
                (&["-e".to_owned(), ".".to_owned()][..], &None)
            );
        }
    }
}

#[test]
fn cells_at_the_same_time_have_versions_of_their_own() {
    let Some(scene) = Scene::new() else { return };
    for version in ["1.0", "2.0"] {
        scene.make("wheel", "tiny", version, "case/src/wheels");
    }
    let trials = [
        ("1.0", EXECUTORS[0]),
        ("2.0", EXECUTORS[0]),
        ("1.0", EXECUTORS[1]),
        ("2.0", EXECUTORS[1]),
    ];
    let trials = trials.map(|(version, executor)| {
        let block = format!("{{kind: uv, requirements: [tiny=={version}], pip_args: [--no-index, --find-links, wheels]}}");
        (version, executor, scene.environment(&block))
    });
    thread::scope(|scope| {
        for (version, executor, environment) in &trials {
            let cell = scene.cell(*executor);
            scope.spawn(move || {
                let made = cell.provision(environment, &[]).unwrap();
                let import = "python -c 'import tiny; print(tiny.VERSION)'";
                assert_eq!(cell.printed(import, &made.env), *version, "{executor:?}");
                let none = "! /usr/bin/python3 -c 'import tiny' 2>/dev/null && echo none";
                assert_eq!(cell.printed(none, &made.env), "none");
            });
        }
    });
}
