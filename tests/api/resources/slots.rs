//! Rows 28 to 30 of the contract: how many runs are allowed at once, and when a slot is free again.

use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{Client, post, solution};
use cofferdam_test_server::host::{Process, is_running, run_processes};
use cofferdam_test_server::service::{Service, Setup, best_of_three, wait_until};

const BUSY: &str = r#"{"error":"runner busy"}"#;
/// For what must happen soon, on a loaded machine.
const SOON: Duration = Duration::from_secs(10);

fn assert_busy(service: &Service) {
    let start = Instant::now();
    let answer = service.run("true");
    answer.assert_json(429, BUSY);
    assert_eq!(answer.header("retry-after"), Some("1"));
    assert!(start.elapsed() < Duration::from_secs(2), "not at once: {:?}", start.elapsed());
}

/// How long after the disconnect of `client` the next run is accepted.
fn free_after(service: &Service, client: Client) -> Duration {
    drop(client);
    let gone = Instant::now();
    loop {
        let asked = gone.elapsed();
        if service.run("true").status == 200 {
            return asked;
        }
        assert!(asked < Duration::from_secs(10), "the slot is still taken");
    }
}

#[test]
fn a_run_beyond_the_last_slot_is_refused_at_once() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "1").start();
    let live = service.live("sleep 60");
    assert_busy(&service);
    free_after(&service, live);
}

#[test]
fn there_are_ten_slots_by_default() {
    let service = Setup::shell().start();
    let mut live: Vec<Client> = (0..10).map(|_| service.live("sleep 60")).collect();
    assert_busy(&service);
    free_after(&service, live.remove(0));
}

#[test]
fn a_request_is_validated_before_it_takes_a_slot() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "1").start();
    let _live = service.live("sleep 60");
    let mut body = solution("true");
    body["lang_slug"] = "perl".into();
    service.post(&body).assert_json(400, r#"{"error":"unsupported lang_slug"}"#);
    body["lang_slug"] = "cpp".into();
    service.post(&body).assert_json(400, r#"{"error":"checker_text is required"}"#);
    body["timeout"] = "5".into();
    service.post(&body).assert_json(400, r#"{"error":"invalid timeout"}"#);
    service.ask(post("", "{")).assert_error_naming(400, "EOF");
    assert_busy(&service);
}

#[test]
fn a_client_that_posts_again_at_once_is_never_refused() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "1").start();
    let fire = post("", solution("echo hi").to_string());
    let mut client = service.connect();
    for round in 0..200 {
        let answer = client.ask(&fire);
        assert_eq!(answer.status, 200, "round {round}: {answer:?}");
    }
    for round in 0..50 {
        assert_eq!(service.run("echo hi").status, 200, "connection {round}");
    }
    // Failed runs free the slot too.
    for script in ["kill -9 $$", "yes", "exit 3"] {
        for round in 0..5 {
            assert_ne!(client.ask(post("", solution(script).to_string())).status, 429, "{round}");
        }
    }
}

#[test]
fn a_disconnect_kills_the_run_and_frees_its_slot_within_200_ms() {
    let _alone = alone();
    let service = Setup::shell().env("RUN_CONCURRENCY", "1").start();
    let script = "trap '' TERM HUP; setsid sleep 60 & sleep 60";
    best_of_three(Duration::from_millis(200), || {
        let live = service.live(script);
        free_after(&service, live)
    });
    best_of_three(Duration::from_millis(200), || {
        // The same without a stream: the service has written nothing before the disconnect.
        let mut client = service.connect();
        client.send(post("", solution(script).to_string()));
        wait_until("the run", SOON, || is_running(service.pid(), "sleep"));
        free_after(&service, client)
    });
    wait_until("the processes to die", Duration::from_secs(1), || {
        run_processes(service.pid()).is_empty()
    });
}

#[test]
fn a_client_that_half_closes_its_connection_still_gets_its_answer() {
    let ask = |service: &Service, script: &str| {
        let mut client = service.connect();
        client.send(post("", solution(script).to_string()));
        client.stop_sending();
        client.answer().finished().stdout
    };
    let service = Setup::shell().env("RUN_ON_DISCONNECT", "finish").start();
    assert_eq!(ask(&service, "sleep 1; echo done"), "done\n");
    drop(service);
    // If disconnects kill runs, a half-closed connection looks like a disconnect after a while:
    // only a short run is safe, and on a loaded machine not every time.
    let service = Setup::shell().start();
    assert!((0..10).any(|_| ask(&service, "echo done") == "done\n"));
}

#[test]
fn as_many_clients_as_there_are_slots_are_never_refused() {
    let service = Setup::shell().env("RUN_CONCURRENCY", "8").start();
    thread::scope(|scope| {
        for client in 0..8 {
            let service = &service;
            scope.spawn(move || {
                for round in 0..6 {
                    let script = format!("echo {client} {round}");
                    assert_eq!(service.run(&script).stdout(), format!("{client} {round}\n"));
                }
            });
        }
    });
}

#[test]
fn a_run_outlives_its_client_if_configured() {
    let service =
        Setup::shell().env("RUN_CONCURRENCY", "1").env("RUN_ON_DISCONNECT", "finish").start();
    let mut client = service.connect();
    client.send(post("", solution("sleep 2").to_string()));
    wait_until("the run", SOON, || is_running(service.pid(), "sleep"));
    let program = run_processes(service.pid());
    drop(client);
    let gone = Instant::now();
    while gone.elapsed() < Duration::from_secs(1) {
        assert_busy(&service);
    }
    assert!(program.iter().all(Process::is_alive), "{program:?}");
    wait_until("the run to end", SOON, || service.run("true").status == 200);
}
