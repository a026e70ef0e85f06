//! Kernels that are started ahead of the first code of a workspace.

use cofferdam_test_server::prestart::metric;
use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::{Notebook, SOON};
use crate::scene::{EngineScene, scene};

/// What the first block of each language finds, where nothing may tell how its kernel was started.
const FIRST: [(&str, &str); 2] = [
    (
        "python",
        "import os, resource, sys, late\n\
         print(late.VALUE, open('/proc/self/cmdline').read())\n\
         print(os.environ.pop('RUN_DIR').startswith('/workspace/runs/run_'), sys.stdin.read())\n\
         print(sorted(os.listdir('.')), sorted(os.listdir('/tmp')), os.listdir('/proc/self/fd'))\n\
         print(resource.getrlimit(resource.RLIMIT_NOFILE), os.getpid(), os.umask(0))\n\
         [sorted(os.environ.items()), sys.path, sys.argv, os.getcwd(), sorted(sys.modules)]",
    ),
    (
        "js",
        "console.log(require('./late.js'), fs.readFileSync('/proc/self/cmdline', 'utf8'));\n\
         console.log(process.env.RUN_DIR.startsWith('/workspace/runs/run_'), process.pid);\n\
         delete process.env.RUN_DIR;\n\
         JSON.stringify([process.env, process.argv, process.cwd(), fs.readdirSync('.'), module.paths])",
    ),
];
const LATER: [(&str, &str); 4] =
    [("python", "x = 6; x * 7"), ("python", "1/0"), ("js", "const y = 6; y * 7"), ("js", "null.a")];

fn service(prestart: &str) -> Option<EngineScene> {
    scene(&[("STANDBY_MAX", "2"), ("PRESTART", prestart)])
}

/// Has a kernel of `language` executed code, so that new workspaces get one ahead.
fn want<'a>(scene: &'a EngineScene, language: &str) -> Notebook<'a> {
    let notebook = Notebook::new(scene);
    notebook.block(language, "1");
    notebook
}

/// A workspace whose kernel waits.
fn with_kernel_ahead(scene: &EngineScene) -> Notebook<'_> {
    let notebook = Notebook::new(scene);
    wait_until("a kernel ahead", SOON, || metric(&scene.service, "boxes_ready") >= 1.0);
    notebook
}

fn put(notebook: &Notebook<'_>, path: &str, contents: &str) {
    let target = format!("{}/files?path={path}", notebook.path);
    let reply = notebook.scene.put(&target, contents.as_bytes());
    assert_eq!(reply.status, 201, "{}", reply.json());
}

/// A block without what differs from call to call.
fn plain(mut block: Value) -> Value {
    for key in ["context_id", "duration_ms"] {
        block[key] = json!(null);
    }
    block
}

/// The blocks of one language in a new workspace.
fn answers(scene: &EngineScene, (language, first): (&str, &str), is_ahead: bool) -> Vec<Value> {
    want(scene, language);
    let before = metric(&scene.service, "boxes_used_total");
    let notebook = if is_ahead { with_kernel_ahead(scene) } else { Notebook::new(scene) };
    put(&notebook, "late.py", "VALUE = 7");
    put(&notebook, "late.js", "module.exports = 7;");
    let later = LATER.iter().filter(|(of, _)| *of == language).map(|(_, code)| *code);
    let blocks = [first].into_iter().chain(later).map(|code| plain(notebook.block(language, code)));
    let blocks = blocks.collect();
    let used = metric(&scene.service, "boxes_used_total") - before;
    assert_eq!(used > 0.0, is_ahead, "{language}");
    blocks
}

#[test]
fn a_kernel_started_ahead_answers_as_one_that_was_not() {
    for first in FIRST {
        let (Some(on), Some(off)) = (service("on"), service("off")) else { return };
        let (ahead, cold) = (answers(&on, first, true), answers(&off, first, false));
        assert_eq!(cold[0]["status"], "ok", "{}", cold[0]);
        for (ahead, cold) in ahead.iter().zip(&cold) {
            assert_eq!(ahead, cold);
        }
        assert_eq!(ahead.len(), cold.len());
    }
}

#[test]
fn a_kernel_started_ahead_serves_one_context_of_its_own_workspace() {
    let Some(scene) = service("on") else { return };
    want(&scene, "python");
    let notebook = with_kernel_ahead(&scene);
    let other = Notebook::of(&scene, &json!({"env": {"OF": "workspace"}}));
    assert_eq!(other.value("python", "import os; os.environ['OF']"), "'workspace'");
    assert_eq!(metric(&scene.service, "boxes_used_total"), 0.0);
    assert_eq!(notebook.value("python", "x = 1; x"), "1");
    assert_eq!(metric(&scene.service, "boxes_used_total"), 1.0);
    let second = scene.post(&format!("{}/contexts", notebook.path), &json!({"language": "python"}));
    assert_eq!(second.status, 201);
    assert_eq!(metric(&scene.service, "boxes_used_total"), 1.0);
}

#[test]
fn packages_of_the_user_that_came_after_a_kernel_was_started_are_found() {
    let Some(scene) = service("on") else { return };
    let first = want(&scene, "python");
    let site = first.value("python", "import site; site.getusersitepackages()");
    let notebook = with_kernel_ahead(&scene);
    put(&notebook, &format!("{}/late.py", site.trim_matches('\'')), "VALUE = 7");
    assert_eq!(notebook.value("python", "import late; late.VALUE"), "7");
    assert_eq!(metric(&scene.service, "boxes_used_total"), 0.0);
}

#[test]
fn a_kernel_that_waits_hinders_no_snapshot_and_dies_with_its_workspace() {
    let Some(scene) = service("on") else { return };
    want(&scene, "python");
    let notebook = with_kernel_ahead(&scene);
    let snapshot = scene.post(&format!("{}/snapshot", notebook.path), &json!({}));
    assert_eq!(snapshot.status, 201, "{}", snapshot.json());
    assert_eq!(notebook.value("python", "6 * 7"), "42");
    let another = with_kernel_ahead(&scene);
    assert_eq!(scene.delete(&another.path).status / 100, 2);
    let is_gone = || metric(&scene.service, "boxes_ready") == 0.0;
    wait_until("the kernel to end", SOON, is_gone);
}
