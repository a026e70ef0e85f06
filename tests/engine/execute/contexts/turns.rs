//! Calls that want the same context.

use super::*;

#[test]
fn calls_take_turns_sixteen_wait_and_one_more_is_refused() {
    let Some(scene) = &scene(&[("ENGINE_RUNS_MAX", "2")]) else { return };
    let notebook = Notebook::new(scene);
    notebook.python("import time; done = []");
    thread::scope(|scope| {
        let slow = notebook.body("python", "time.sleep(60)");
        let slow = scope.spawn(move || scene.post("/v1/execute", &slow).json());
        let context = || notebook.contexts()[0].clone();
        wait_until("the first call", SOON, || context()["status"] == "busy");
        let mut waiting = Vec::new();
        for number in 0..16 {
            let body = notebook.body("python", &format!("done.append({number})"));
            let target = "/v1/execute";
            waiting.push(scope.spawn(move || scene.post(target, &body).status));
            wait_until("a place", SOON, || context()["waiting"] == number + 1);
        }
        let late = notebook.body("python", "1");
        scene.post("/v1/execute", &late).assert_error(429, "context.busy");
        // Those that wait take no program its place.
        assert_eq!(scene.sh(&notebook.path, "echo on"), "on\n");
        let id = context()["context_id"].as_str().unwrap().to_owned();
        let interrupt = format!("{}/contexts/{id}/interrupt", notebook.path);
        assert_eq!(scene.post(&interrupt, &json!({})).status, 200);
        let slow = slow.join().unwrap();
        assert_eq!(slow["blocks"][0]["error"]["name"], "KeyboardInterrupt", "{slow}");
        assert_eq!(slow["blocks"][0]["status"], "error");
        for waiting in waiting {
            assert_eq!(waiting.join().unwrap(), 200);
        }
    });
    let expected: Vec<usize> = (0..16).collect();
    assert_eq!(notebook.value("python", "done"), format!("{expected:?}"));
}

#[test]
fn calls_that_take_turns_need_one_place_together() {
    let Some(scene) = &scene(&[("ENGINE_RUNS_MAX", "1")]) else { return };
    let notebook = &Notebook::new(scene);
    notebook.python("1");
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let answer = scene.post("/v1/execute", &notebook.body("python", "1"));
                    assert_eq!(answer.status, 200, "{}", String::from_utf8_lossy(&answer.body));
                }
            });
        }
    });
}
