//! What programs of one sandbox share, and the list of their processes.

use cofferdam_test_server::host::tenants;
use cofferdam_test_server::service::wait_until;
use serde_json::{Value, json};

use super::{SOON, processes, run, running, shared, shared_with, start};
use crate::scene::{bearer, scene, scene_with_tokens};

const SERVER: &str = "
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b'served')
    def log_message(self, *_): pass
server = http.server.HTTPServer(('127.0.0.1', 8123), Handler)
open('ready', 'w').close()
server.serve_forever()
";
const CLIENT: &str = "
import urllib.request
print(urllib.request.urlopen('http://127.0.0.1:8123').read().decode(), end='')
";

#[test]
fn a_server_that_one_program_left_is_reached_by_the_next() {
    let Some((scene, workspace)) = shared() else { return };
    let script =
        format!("setsid python3 -c \"{SERVER}\" & until [ -e ready ]; do sleep 0.01; done");
    let started = run(&scene, &workspace, &script, &json!({}));
    assert_eq!((&started["exit_code"], &started["outcome"]), (&json!(0), &json!("exited")));
    let asked = scene.run(&workspace, &json!({"cmd": "python3", "args": ["-c", CLIENT]}));
    assert_eq!(asked["stdout"], "served", "{asked}");
    let listed = processes(&scene, &workspace);
    assert_eq!(listed.len(), 1, "{listed:?}");
    let server = &listed[0];
    let keys: Vec<&str> = server.as_object().unwrap().keys().map(String::as_str).collect();
    let wanted =
        ["args", "cpu_ms", "memory_bytes", "pid", "ppid", "run_dir", "session_id", "started_at"];
    assert_eq!(keys, wanted);
    assert_eq!((&server["args"][0], &server["args"][2]), (&json!("python3"), &json!(SERVER)));
    // Its parent is dead.
    assert_eq!((&server["ppid"], &server["session_id"]), (&json!(1), &Value::Null));
    assert!(
        server["cpu_ms"].as_u64().unwrap() > 0 && server["memory_bytes"].as_u64() > Some(1 << 20)
    );
    assert!(server["run_dir"].as_str().unwrap().starts_with("runs/run_"), "{server}");
    // As the programs number it.
    let seen = scene.sh(&workspace, "cat /proc/*/comm | grep -c python3; pgrep -x python3");
    assert_eq!(seen, format!("1\n{}\n", server["pid"]));
    // Another workspace sees none of it.
    let other = scene.create(&json!({"sandbox": "workspace"}));
    let asked = scene.run(&other, &json!({"cmd": "python3", "args": ["-c", CLIENT]}));
    assert_eq!(asked["exit_code"], 1, "{asked}");
    assert!(processes(&scene, &other).is_empty());
}

#[test]
fn programs_share_ipc_shared_memory_and_signals_and_each_has_its_own_limits() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "echo kept >/dev/shm/file; sleep 600 & echo $! >pid");
    assert_eq!(scene.sh(&workspace, "cat /dev/shm/file; kill $(cat pid); echo $?"), "kept\n0\n");
    wait_until("the process is dead", SOON, || processes(&scene, &workspace).is_empty());
    let body =
        json!({"cmd": "sh", "args": ["-c", "ulimit -n; cat /proc/self/oom_score_adj; id -u"]});
    assert_eq!(scene.run(&workspace, &body)["stdout"], "4096\n1000\n10001\n");
    let failed = scene.run(&workspace, &json!({"cmd": "no-such-program"}));
    assert_eq!((&failed["outcome"], &failed["exit_code"]), (&json!("not_started"), &json!(-1)));
    assert_eq!(failed["error"]["code"], "run.spawn_failed");
    assert_eq!(scene.sh(&workspace, "echo still here"), "still here\n");
}

#[test]
fn output_that_is_written_later_goes_to_the_log_of_the_session_and_holds_up_no_result() {
    let Some((scene, workspace)) = shared() else { return };
    let script = "echo now; (while [ ! -e go ]; do sleep 0.01; done; echo later; sleep 600) &";
    let session = start(&scene, &workspace, script, &json!({}));
    wait_until("the program has ended", SOON, || {
        scene.get(&format!("{session}/result")).status == 200
    });
    let result = scene.get(&format!("{session}/result")).json();
    assert_eq!((&result["stdout"], &result["exit_code"]), (&json!("now\n"), &json!(0)));
    let listed = processes(&scene, &workspace);
    let id = session.rsplit('/').next().unwrap();
    assert!(listed.iter().all(|process| process["session_id"] == id), "{listed:?}");
    scene.put(&format!("{workspace}/files?path=go"), b"");
    wait_until("the log has it", SOON, || {
        scene.get(&format!("{session}/log")).json()["output"] == "now\nlater"
    });
    // A run's is dropped, and its pipe never fills up.
    let script = "(yes | head -c 3000000; touch written; sleep 600) & sleep 0.1; echo end";
    let result = run(&scene, &workspace, script, &json!({}));
    assert_eq!(result["exit_code"], 0);
    wait_until("all is written", SOON, || {
        scene.get(&format!("{workspace}/stat?path=written")).status == 200
    });
}

#[test]
fn a_terminal_is_the_controlling_one_of_its_program_alone() {
    let Some((scene, workspace)) = shared() else { return };
    let script = "test -t 0 && stty size; tty; read line; echo got $line; exec sleep 600";
    let keys = json!({"tty": true, "cols": 90, "rows": 30});
    let [first, second] = [1, 2].map(|_| start(&scene, &workspace, script, &keys));
    let log = |session: &str| scene.get(&format!("{session}/log")).json()["output"].clone();
    for (session, tty) in [(&first, 0), (&second, 1)] {
        wait_until("the terminal is told", SOON, || {
            log(session) == format!("30 90\n/dev/pts/{tty}")
        });
    }
    scene.post(&format!("{first}/write"), &json!({"data": "x", "newline": true}));
    wait_until("the line is read", SOON, || log(&first).as_str().unwrap().ends_with("got x"));
    assert_eq!(scene.post(&format!("{first}/signal"), &json!({"signal": "INT"})).status, 200);
    wait_until("the first has ended", SOON, || scene.get(&first).json()["status"] == "exited");
    assert_eq!(scene.get(&second).json()["status"], "running");
}

#[test]
fn a_signal_reaches_one_process_and_no_other_workspace_and_never_the_init() {
    let Some(scene) = scene_with_tokens(&[]) else { return };
    let ask = |client, method, target: &str, body: &Value| {
        let body = if method == "GET" { String::new() } else { body.to_string() };
        crate::exchange::ask(&scene.service, method, target, &bearer(client), body.as_bytes())
    };
    let create = |client| {
        let made = ask(client, "POST", "/v1/workspaces", &json!({"sandbox": "workspace"}));
        format!("/v1/workspaces/{}", made.json()["workspace_id"].as_str().unwrap())
    };
    let (mine, others) = (create(0), create(1));
    let script = "sleep 601 & sleep 602 &";
    let body = json!({"cmd": "sh", "args": ["-c", script]});
    assert_eq!(ask(0, "POST", &format!("{mine}/run"), &body).status, 200);
    let listed =
        || ask(0, "GET", &format!("{mine}/processes"), &Value::Null).json()["processes"].clone();
    wait_until("both are executed", SOON, || listed().as_array().unwrap().len() == 2);
    let pids: Vec<Value> = listed().as_array().unwrap().iter().map(|p| p["pid"].clone()).collect();
    assert_eq!(pids.len(), 2, "{:?}", listed());
    let kill = |client, workspace: &str, pid: &Value| {
        let target = format!("{workspace}/processes/{pid}/signal");
        ask(client, "POST", &target, &json!({"signal": "KILL"}))
    };
    kill(1, &mine, &pids[0]).assert_error(404, "workspace.not_found");
    kill(1, &others, &pids[0]).assert_error(404, "process.not_found");
    kill(0, &mine, &json!(1)).assert_error(404, "process.not_found");
    kill(0, &mine, &json!(0)).assert_error(404, "process.not_found");
    let target = format!("{mine}/processes/{}/signal", pids[0]);
    ask(0, "POST", &target, &json!({"signal": "NOPE"}))
        .assert_error(422, "validation.invalid_request");
    assert_eq!(kill(0, &mine, &pids[0]).status, 200);
    wait_until("it is dead", SOON, || listed().as_array().unwrap().len() == 1);
    assert_eq!(listed()[0]["pid"], pids[1]);
    kill(0, &mine, &pids[0]).assert_error(404, "process.not_found");
}

#[test]
fn a_workspace_of_single_sandboxes_has_no_processes_to_list() {
    let Some(scene) = scene(&[]) else { return };
    let workspace = scene.create(&json!({}));
    assert_eq!(scene.get(&workspace).json()["sandbox"], "program");
    for (method, below) in
        [("GET", "processes"), ("POST", "processes/7/signal"), ("POST", "restart")]
    {
        let target = format!("{workspace}/{below}");
        let body: &[u8] = if below.ends_with("signal") { b"{\"signal\":\"KILL\"}" } else { b"" };
        let reply = crate::exchange::ask(&scene.service, method, &target, "", body);
        reply.assert_error(409, "workspace.not_shared");
    }
}

#[test]
fn a_context_and_blocks_of_code_run_in_the_one_sandbox() {
    let Some((scene, workspace)) = shared_with(&json!({"path": "/srv/agent"})) else { return };
    let id = workspace.rsplit('/').next().unwrap();
    let execute = |language: &str, code: &str| {
        let blocks = json!([{"language": language, "code": code}]);
        let body = json!({"code_blocks": blocks, "stateful": true, "workspace_id": id});
        let reply = scene.post("/v1/execute", &body);
        assert_eq!(reply.status, 200, "{}", reply.json());
        reply.json()["blocks"][0].clone()
    };
    assert_eq!(execute("bash", "sleep 603 & echo $!")["status"], "ok");
    let code = "import os\n[p for p in os.listdir('/proc') if p.isdigit() and \
        'sleep' in open(f'/proc/{p}/comm').read()]";
    let seen = execute("python", code);
    assert_eq!(seen["results"][0]["text"].as_str().unwrap().matches('\'').count(), 2, "{seen}");
    assert_eq!(execute("python", "x = 1")["status"], "ok");
    assert_eq!(execute("python", "x + 1")["results"][0]["text"], "2");
    assert_eq!(scene.post(&format!("{workspace}/restart"), &json!({})).status, 200);
    assert!(running(&scene, &workspace, "sleep 603").is_empty());
    let lost = execute("python", "x");
    assert_eq!((&lost["state_lost"], &lost["error"]["name"]), (&json!(true), &json!("NameError")));
}

#[test]
fn the_service_leaves_nothing_when_the_workspace_is_removed() {
    let Some((scene, workspace)) = shared() else { return };
    scene.sh(&workspace, "sleep 600 & setsid sleep 600 &");
    assert!(!tenants(scene.service.pid()).is_empty());
    assert_eq!(scene.delete(&workspace).status, 200);
    assert!(tenants(scene.service.pid()).is_empty());
}
