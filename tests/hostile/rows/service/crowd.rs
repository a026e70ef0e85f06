//! More clients than run slots.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::{Client, post, request};
use cofferdam_test_server::service::best_of_three;

use super::plain;
use crate::Unexercised;
use crate::probe::Probe;
use crate::rows::at_once;
use crate::target::Target;

/// The most slots of a service that this row fills.
const SLOTS_MAX: usize = 64;
/// Clients per slot.
const CROWD: usize = 10;
/// How soon the whole crowd is refused.
const REFUSED_WITHIN: Duration = Duration::from_secs(1);
const HEALTH_WITHIN: Duration = Duration::from_millis(100);
/// How long a new client's run may wait after the crowd has disconnected.
const FREE_WITHIN: Duration = Duration::from_secs(10);

pub fn saturation(target: &Target) -> Result<(), Unexercised> {
    let sleeper = Probe::inline("import time\ndef probe():\n    time.sleep(55)").within("60s");
    let sleeper = post("", sleeper.body(target.slug()).to_string());
    let mut sleeping = Vec::new();
    while target.ask(plain(target)).status == 200 {
        assert!(sleeping.len() < SLOTS_MAX, "{SLOTS_MAX} runs and no refusal");
        let mut client = target.connect();
        client.send(&sleeper);
        sleeping.push(client);
        // Until the run has its slot.
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!sleeping.is_empty(), "the service was busy from the start");
    let crowd = CROWD * sleeping.len();
    best_of_three(REFUSED_WITHIN, || refuse(target, crowd));
    best_of_three(HEALTH_WITHIN, || health_beside(target, crowd));
    drop(sleeping);
    let gone = Instant::now();
    while target.ask(plain(target)).status != 200 {
        assert!(gone.elapsed() < FREE_WITHIN, "the slots are still taken");
    }
    Ok(())
}

/// Sends all requests at the same time; returns how long the last refusal took.
fn refuse(target: &Target, crowd: usize) -> Duration {
    let clients: Vec<Mutex<Client>> = (0..crowd).map(|_| Mutex::new(target.connect())).collect();
    let request = plain(target);
    let times = at_once(crowd, |number| {
        let mut client = clients[number].lock().unwrap();
        let began = Instant::now();
        let answer = client.ask(&request);
        answer.assert_json(429, r#"{"error":"runner busy"}"#);
        assert_eq!(answer.header("retry-after"), Some("1"));
        began.elapsed()
    });
    times.into_iter().max().unwrap()
}

/// How long /health takes while the crowd's requests are in flight.
fn health_beside(target: &Target, crowd: usize) -> Duration {
    let request_run = plain(target);
    let mut clients: Vec<Client> = (0..crowd).map(|_| target.connect()).collect();
    let mut prober = target.connect();
    for client in &mut clients {
        client.send(&request_run);
    }
    let began = Instant::now();
    let health = prober.ask(request("GET", "/health", ""));
    let took = began.elapsed();
    assert_eq!((health.status, health.body.as_str()), (200, "ok\n"));
    for client in &mut clients {
        assert_eq!(client.answer().status, 429);
    }
    took
}
