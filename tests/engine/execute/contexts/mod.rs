//! Contexts: code that keeps its state, over HTTP with the real interpreters.

mod ahead;
mod turns;

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use crate::exchange::ask;
use crate::scene::{EngineScene, bearer, scene, scene_with_tokens};

const SOON: Duration = Duration::from_secs(20);

/// A workspace whose contexts execute code.
struct Notebook<'a> {
    scene: &'a EngineScene,
    path: String,
    id: String,
}

impl<'a> Notebook<'a> {
    fn new(scene: &'a EngineScene) -> Self {
        Self::of(scene, &json!({}))
    }

    fn of(scene: &'a EngineScene, body: &Value) -> Self {
        let path = scene.create(body);
        let id = path.rsplit('/').next().unwrap().to_owned();
        Self { scene, path, id }
    }

    fn body(&self, language: &str, code: &str) -> Value {
        let block = json!({"language": language, "code": code});
        json!({"code_blocks": [block], "workspace_id": self.id, "stateful": true})
    }

    #[track_caller]
    fn execute(&self, body: &Value) -> Value {
        let reply = self.scene.post("/v1/execute", body);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()
    }

    #[track_caller]
    fn block(&self, language: &str, code: &str) -> Value {
        self.execute(&self.body(language, code))["blocks"][0].clone()
    }

    #[track_caller]
    fn python(&self, code: &str) -> Value {
        self.block("python", code)
    }

    /// The value of the last expression, as text.
    #[track_caller]
    fn value(&self, language: &str, code: &str) -> String {
        let block = self.block(language, code);
        assert_eq!(block["status"], "ok", "{block}");
        block["results"][0]["text"].as_str().unwrap_or_else(|| panic!("{block}")).to_owned()
    }

    fn view(&self) -> Value {
        self.scene.get(&self.path).json()
    }

    fn contexts(&self) -> Value {
        self.scene.get(&format!("{}/contexts", self.path)).json()["contexts"].clone()
    }
}

#[test]
fn a_context_keeps_variables_imports_and_the_directory() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    let first = notebook.python("import os, math\nx = 20\nos.chdir('work')\nprint('begun')");
    assert_eq!((&first["status"], &first["stdout"]), (&json!("ok"), &json!("begun\n")));
    assert_eq!((&first["results"], &first["exit_code"]), (&json!([]), &json!(null)));
    assert_eq!((&first["execution_count"], &first["state_lost"]), (&json!(1), &json!(false)));
    assert_eq!(notebook.value("py", "x + math.floor(1.5)"), "21");
    assert_eq!(notebook.value("python3", "os.getcwd()"), "'/workspace/work'");
    assert_eq!(notebook.value("js", "const y = 2; y * 3"), "6");
    assert_eq!(notebook.value("node", "y + 1"), "3");
    let third = notebook.python("x");
    assert_eq!(third["execution_count"], 4);
    assert_eq!(third["context_id"], first["context_id"]);
    assert_eq!(notebook.view()["contexts"], 2);
    let other = Notebook::new(&scene);
    assert_eq!(other.python("x")["error"]["name"], "NameError");
}

#[test]
fn one_call_has_blocks_of_every_kind() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    let blocks = json!([
        {"language": "python", "code": "open('a', 'w').write('from python')\nprint('one')"},
        {"language": "bash", "code": "cat ../a; echo; exit 2"},
        {"language": "javascript", "code": "console.log(require('fs').readFileSync('a', 'utf8'))"},
        {"language": "cobol", "code": ""},
        {"language": "python", "code": "1/0"},
    ]);
    let body = json!({"code_blocks": blocks, "workspace_id": notebook.id, "stateful": true});
    let answer = notebook.execute(&body);
    let statuses: Vec<_> =
        answer["blocks"].as_array().unwrap().iter().map(|block| &block["status"]).collect();
    assert_eq!(statuses, ["ok", "error", "ok", "unsupported", "error"]);
    let bash = &answer["blocks"][1];
    assert_eq!((&bash["context_id"], &bash["exit_code"]), (&json!(null), &json!(2)));
    let output = answer["output"].as_str().unwrap();
    assert!(output.starts_with("one\nError executing code block 1: command failed (cwd=src, "));
    assert!(output.contains("Error executing code block 3: unsupported language: cobol\n"));
    assert!(output.contains("Error executing code block 4: Traceback"), "{output}");
    assert!(output.ends_with("ZeroDivisionError: division by zero\n"), "{output}");
    let error = &answer["blocks"][4]["error"];
    assert_eq!(
        (&error["name"], &error["value"]),
        (&json!("ZeroDivisionError"), &json!("division by zero"))
    );
    assert_eq!(error["traceback"].as_str().unwrap().matches("File ").count(), 1, "{error}");
}

#[test]
fn a_context_is_found_by_its_id_its_workspace_or_its_label() {
    let Some(scene) = scene(&[]) else { return };
    let block = |code: &str| json!([{"language": "python", "code": code}]);
    let body = |code: &str, key: &str, value: &str| {
        let mut body = json!({"code_blocks": block(code), "stateful": true});
        body[key] = json!(value);
        body
    };
    let execute = |body: &Value| scene.post("/v1/execute", body).json();
    let first = execute(&body("x = 7", "execution_id", "label"));
    let (workspace, context) = (&first["workspace_id"], &first["blocks"][0]["context_id"]);
    for (key, value) in [
        ("execution_id", "label"),
        ("workspace_id", workspace.as_str().unwrap()),
        ("context_id", context.as_str().unwrap()),
    ] {
        let answer = execute(&body("x", key, value));
        assert_eq!(answer["blocks"][0]["results"][0]["text"], "7", "{key}");
        assert_eq!(&answer["workspace_id"], workspace);
    }
    assert_eq!(scene.get("/v1/workspaces").json()["workspaces"].as_array().unwrap().len(), 1);
    scene
        .post("/v1/execute", &body("x", "context_id", "c_0"))
        .assert_error(404, "context.not_found");
    let mut wrong = body("1", "context_id", context.as_str().unwrap());
    wrong["code_blocks"][0]["language"] = json!("js");
    scene.post("/v1/execute", &wrong).assert_error(422, "validation.invalid_request");
}

#[test]
fn contexts_are_made_listed_and_removed() {
    let Some(scene) = scene(&[("ENGINE_CONTEXTS_MAX", "2")]) else { return };
    let notebook = Notebook::new(&scene);
    let all = format!("{}/contexts", notebook.path);
    let body =
        json!({"language": "py", "cwd": "work/deep", "env": {"A": "1"}, "limits": {"max_pids": 9}});
    let made = scene.post(&all, &body);
    assert_eq!(made.status, 201, "{}", made.json());
    let view = made.json();
    let id = view["context_id"].as_str().unwrap();
    let one = format!("{all}/{id}");
    assert_eq!(made.header("location"), Some(&*one));
    assert_eq!((&view["language"], &view["status"]), (&json!("python"), &json!("idle")));
    assert_eq!((&view["cwd"], &view["env"]), (&json!("work/deep"), &json!(["A"])));
    assert_eq!((&view["limits"]["max_pids"], &view["execution_count"]), (&json!(9), &json!(0)));
    let mut call = notebook.body("python", "import os; os.getcwd(), os.environ['A']");
    call["context_id"] = json!(id);
    let answer = notebook.execute(&call);
    assert_eq!(answer["blocks"][0]["results"][0]["text"], "('/workspace/work/deep', '1')");
    assert_eq!(answer["blocks"][0]["context_id"], id);
    call["env"] = json!({"A": "2"});
    scene.post("/v1/execute", &call).assert_error(422, "validation.invalid_request");
    let own = notebook.python("import os; 'A' in os.environ");
    assert_eq!(own["results"][0]["text"], "False");
    assert_ne!(own["context_id"], id);
    let listed = notebook.contexts();
    let ids: Vec<_> = listed.as_array().unwrap().iter().map(|view| &view["context_id"]).collect();
    assert_eq!(ids, [&json!(id), &own["context_id"]]);
    let page = scene.get(&format!("{all}?limit=1")).json();
    assert_eq!(page["contexts"].as_array().unwrap().len(), 1);
    let rest = format!("{all}?limit=1&cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(scene.get(&rest).json()["contexts"][0]["context_id"], own["context_id"]);
    scene.post(&all, &json!({"language": "js"})).assert_error(429, "workspace.limit");
    assert_eq!(scene.delete(&one).status, 204);
    scene.get(&one).assert_error(404, "context.not_found");
    scene.post("/v1/execute", &notebook.body("js", "1")).json();
    for (body, status, code) in [
        (json!({"language": "bash"}), 422, "validation.invalid_request"),
        (json!({}), 422, "validation.invalid_request"),
        (json!({"language": "py", "x": 1}), 422, "validation.invalid_request"),
        (json!({"language": "py", "env": {"": ""}}), 422, "validation.invalid_request"),
    ] {
        scene.post(&all, &body).assert_error(status, code);
    }
}

#[test]
fn a_language_that_is_not_installed_is_unavailable() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::of(&scene, &json!({"env": {"PATH": "/nowhere"}}));
    let made = scene.post(&format!("{}/contexts", notebook.path), &json!({"language": "py"}));
    made.assert_error(503, "language.unavailable");
    assert_eq!(notebook.view()["contexts"], 0);
    let call = notebook.body("js", "1");
    scene.post("/v1/execute", &call).assert_error(503, "language.unavailable");
}

/// A service kills interrupted code that takes longer than a second to end, which any code may under load.
/// That the state stays otherwise is for `tests/library/code.rs`, whose engine waits longer.
#[test]
fn code_whose_time_is_over_ends_and_the_answer_tells_whether_the_state_stays() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    for (language, set, endless, get, lost) in [
        ("python", "x = 7", "while True: pass", "x", "NameError"),
        ("js", "globalThis.x = 7", "while (true);", "x", "ReferenceError"),
        ("js", "globalThis.x = 7", "await new Promise(() => {})", "x", "ReferenceError"),
    ] {
        notebook.block(language, set);
        let mut body = notebook.body(language, endless);
        body["timeout_ms"] = json!(400);
        let block = notebook.execute(&body)["blocks"][0].clone();
        let is_lost = block["state_lost"] == true;
        let status = if is_lost { "killed" } else { "timed_out" };
        assert_eq!((&block["status"], &block["limit"]), (&json!(status), &json!("wall_time")));
        let next = notebook.block(language, get);
        if is_lost {
            assert_eq!(next["error"]["name"], lost, "{next}");
        } else {
            assert!(block["error"]["name"].is_string(), "{block}");
            assert_eq!(next["results"][0]["text"], "7", "{next}");
        }
    }
}

#[test]
fn code_that_ignores_the_interrupt_is_killed_a_second_later() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    let code = "import time\nx = 1\nprint('begun', flush=True)\nwhile True:\n  try:\n    \
                while True: time.sleep(0.01)\n  except KeyboardInterrupt: pass";
    let mut body = notebook.body("python", code);
    body["timeout_ms"] = json!(300);
    let began = Instant::now();
    let block = notebook.execute(&body)["blocks"][0].clone();
    assert!(began.elapsed() >= Duration::from_millis(1300), "{:?}", began.elapsed());
    assert_eq!((&block["status"], &block["limit"]), (&json!("killed"), &json!("wall_time")));
    assert_eq!((&block["stdout"], &block["state_lost"]), (&json!("begun\n"), &json!(true)));
    let next = notebook.python("'x' in globals()");
    assert_eq!(
        (&next["results"][0]["text"], &next["state_lost"]),
        (&json!("False"), &json!(false))
    );
    assert_eq!(next["execution_count"], 1);
}

#[test]
fn an_exit_and_the_memory_limit_kill_the_context() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::of(&scene, &json!({"limits": {"memory_mb": 100}}));
    let block = notebook.python("import os; print('last', flush=True); os._exit(3)");
    assert_eq!((&block["status"], &block["exit_code"]), (&json!("killed"), &json!(3)));
    assert_eq!((&block["stdout"], &block["state_lost"]), (&json!("last\n"), &json!(true)));
    assert_eq!(block["limit"], json!(null));
    let block = notebook.python("x = bytearray(300 << 20)\nlen(x)");
    let is_killed = block["status"] == "killed" && block["limit"] == "memory";
    assert!(is_killed && block["state_lost"] == true, "{block}");
    assert_eq!(notebook.value("python", "1 + 1"), "2");
    // It dies between two calls.
    notebook.python("import os, threading; threading.Timer(0.2, os._exit, [4]).start()");
    let stopped = || notebook.contexts()[0]["status"] == "stopped";
    wait_until("the kernel lives", SOON, stopped);
    let next = notebook.python("1");
    assert_eq!((&next["status"], &next["state_lost"]), (&json!("ok"), &json!(true)));
    assert_eq!(notebook.python("1")["state_lost"], false);
}

#[test]
fn pictures_are_files_below_out_and_nothing_else_is() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    let class = "class A:\n  def __repr__(self): return 'A'\n  def _repr_html_(self): return '<b>'\n  \
                 def _repr_png_(self): return b'png!'\nA()";
    let block = notebook.python(class);
    let results = &block["results"];
    assert_eq!(results[0], json!({"mime_type": "text/plain", "text": "A"}));
    assert_eq!(results[1], json!({"mime_type": "text/html", "text": "<b>"}));
    assert_eq!(
        (&results[2]["mime_type"], &results[2]["size_bytes"]),
        (&json!("image/png"), &json!(4))
    );
    let path = results[2]["path"].as_str().unwrap();
    assert!(path.starts_with("out/results/"), "{path}");
    let file = scene.get(&format!("{}/files?path={path}", notebook.path));
    assert_eq!(file.body, b"png!");
    // A kernel that lies: links, a path that leaves, an unknown type.
    let lies = "import os, json, sys\nos.makedirs('out/results', exist_ok=True)\n\
                open('real', 'w').write('r'); os.symlink('/etc/passwd', 'out/results/host.png')\n\
                os.symlink('../../real', 'out/results/inside.png')\n\
                os.mkfifo('out/results/fifo.png')\nopen('out/results/good.png', 'w').write('ok')\n\
                import gc\nkernel = [o for o in gc.get_objects() if type(o).__name__ == 'Kernel'][0]\n\
                names = ['host.png', 'inside.png', 'fifo.png', '../../real', '..', '', 'gone.png', 'good.png']\n\
                kernel.results = lambda value: [{'mime_type': 'image/png', 'file': n, 'size_bytes': 1 << 40} for n in names] \
                + [{'mime_type': 'image/exe', 'file': 'good.png'}, {'mime_type': 'text/x', 'text': 'x'}]\n1";
    let block = notebook.python(lies);
    let expected =
        json!([{"mime_type": "image/png", "path": "out/results/good.png", "size_bytes": 2}]);
    assert_eq!(block["results"], expected, "{block}");
}

#[test]
fn a_restart_gives_a_fresh_kernel_and_a_removal_ends_those_that_wait() {
    let Some(scene) = &scene(&[]) else { return };
    let notebook = Notebook::new(scene);
    notebook.python("x = 1");
    let id = notebook.contexts()[0]["context_id"].as_str().unwrap().to_owned();
    let one = format!("{}/contexts/{id}", notebook.path);
    let restarted = scene.post(&format!("{one}/restart"), &json!({}));
    assert_eq!((restarted.status, &restarted.json()["status"]), (200, &json!("stopped")));
    let next = notebook.python("'x' in globals()");
    assert_eq!(
        (&next["results"][0]["text"], &next["state_lost"]),
        (&json!("False"), &json!(false))
    );
    thread::scope(|scope| {
        let slow = notebook.body("python", "import time; time.sleep(60)");
        let slow = scope.spawn(move || scene.post("/v1/execute", &slow).json());
        wait_until("the call", SOON, || notebook.contexts()[0]["status"] == "busy");
        let waits = notebook.body("python", "1");
        let waits = scope.spawn(move || scene.post("/v1/execute", &waits));
        wait_until("a place", SOON, || notebook.contexts()[0]["waiting"] == 1);
        assert_eq!(scene.delete(&one).status, 204);
        let killed = slow.join().unwrap();
        assert_eq!(killed["blocks"][0]["status"], "killed", "{killed}");
        waits.join().unwrap().assert_error(404, "context.not_found");
    });
}

#[test]
fn the_kernel_that_is_idle_for_longest_makes_room() {
    let Some(scene) = scene(&[("ENGINE_KERNELS_MAX", "2")]) else { return };
    let books: Vec<_> = (0..3).map(|_| Notebook::new(&scene)).collect();
    books[0].python("x = 0");
    books[1].python("x = 1");
    assert_eq!(books[0].value("python", "x"), "0");
    // The second is dropped.
    books[2].python("x = 2");
    assert_eq!(books[0].value("python", "x"), "0");
    let lost = books[1].python("'x' in globals()");
    assert_eq!((&lost["results"][0]["text"], &lost["state_lost"]), (&json!("False"), &json!(true)));
    thread::scope(|scope| {
        for book in &books[..2] {
            // The first of them takes the place of the third.
            let body = book.body("python", "import time; time.sleep(60)");
            scope.spawn(move || book.scene.post("/v1/execute", &body));
        }
        let busy = |book: &Notebook| book.contexts()[0]["status"] == "busy";
        wait_until("both execute", SOON, || books[..2].iter().all(busy));
        let fresh = books[2].body("python", "1");
        scene.post("/v1/execute", &fresh).assert_error(503, "engine.busy");
        for book in &books[..2] {
            assert_eq!(scene.delete(&book.path).status, 200);
        }
    });
}

#[test]
fn a_live_kernel_keeps_no_workspace_and_dies_with_it() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::of(&scene, &json!({"idle_ms": 3000}));
    notebook.python("open('alive', 'w')");
    // A program keeps the workspace, as a control.
    let other = Notebook::of(&scene, &json!({"idle_ms": 3000}));
    let session = json!({"cmd": "sleep", "args": ["60"]});
    assert_eq!(scene.post(&format!("{}/sessions", other.path), &session).status, 201);
    assert_eq!(notebook.view()["runs"], 0);
    wait_until("the workspace lives", SOON, || scene.get(&notebook.path).status == 404);
    assert_eq!(scene.get(&other.path).status, 200);
    let notebook = Notebook::new(&scene);
    notebook.python("1");
    assert_eq!(scene.delete(&notebook.path).status, 200);
}

/// Starts a thread that writes when there is the file `go`, and makes `read` when both writes are read.
const LATE: &str = r#"
import fcntl, os, struct, termios, threading, time
def wait(is_over):
    while not is_over():
        time.sleep(0.01)
def is_read():
    return struct.unpack('i', fcntl.ioctl(1, termios.FIONREAD, bytes(4))) == (0,)
def write():
    wait(lambda: os.path.exists('go'))
    for text in (b'late', b'.'):
        os.write(1, text)
        wait(is_read)
    open('read', 'w').close()
t = threading.Thread(target=write)
t.start()
"#;

#[test]
fn output_of_a_block_is_its_own_and_kept_within_its_limits() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    let mut body =
        notebook.body("python", "import os\nfor _ in range(64): os.write(1, b'x' * (1 << 20))");
    body["limits"] = json!({"stdout_bytes": 1000});
    let block = notebook.execute(&body)["blocks"][0].clone();
    assert_eq!((&block["status"], block["stdout"].as_str().unwrap().len()), (&json!("ok"), 1000));
    let bytes = notebook.python("import sys; sys.stdout.buffer.write(b'\\xff\\n'); None");
    assert_eq!((&bytes["encoding"], &bytes["stdout"]), (&json!("base64"), &json!("/wo=")));
    // Between two calls it belongs to none. The first output is dropped for certain when the service has read the second.
    notebook.python(LATE);
    scene.put(&format!("{}/files?path=go", notebook.path), b"");
    let dropped = format!("{}/stat?path=read", notebook.path);
    wait_until("the output is read", SOON, || scene.get(&dropped).status == 200);
    let next = notebook.python("t.join()")["stdout"].clone();
    assert!(!next.as_str().unwrap().contains("late"), "{next}");
    let long = notebook.python(&format!("len('{}')", "y".repeat(3 << 20)));
    assert_eq!(long["results"][0]["text"], (3 << 20).to_string());
}

#[test]
fn a_client_that_leaves_interrupts_its_code() {
    let Some(scene) = scene(&[]) else { return };
    let notebook = Notebook::new(&scene);
    notebook.python("import time; x = 7");
    let body = notebook.body("python", "time.sleep(60)").to_string();
    let head = format!(
        "POST /v1/execute HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client =
        cofferdam_test_server::client::Client::try_connect(scene.service.address).unwrap();
    assert!(client.try_send(head.into_bytes()));
    wait_until("the call", SOON, || notebook.contexts()[0]["status"] == "busy");
    drop(client);
    wait_until("the turn", SOON, || notebook.contexts()[0]["status"] == "idle");
    assert_eq!(notebook.value("python", "x"), "7");
}

#[test]
fn contexts_belong_to_the_token_of_their_workspace() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let headers = bearer(0);
    let body = json!({"code_blocks": [{"language": "py", "code": "1"}], "execution_id": "e",
                      "stateful": true});
    let made = scene.post_with("/v1/execute", &headers, &body).json();
    let context = made["blocks"][0]["context_id"].as_str().unwrap();
    let body = json!({"code_blocks": [{"language": "py", "code": "1"}], "context_id": context,
                      "stateful": true});
    let other = scene.post_with("/v1/execute", &bearer(1), &body);
    other.assert_error(404, "context.not_found");
    let path = format!("/v1/workspaces/{}/contexts", made["workspace_id"].as_str().unwrap());
    let reply = ask(&scene.service, "GET", &path, &bearer(1), b"");
    reply.assert_error(404, "workspace.not_found");
}
