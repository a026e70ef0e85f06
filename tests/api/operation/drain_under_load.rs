//! A drain under load: two hundred clients post while the service is told to stop.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{Client, post, solution};
use cofferdam_test_server::host::{Footprint, Process, tenants};
use cofferdam_test_server::service::{Service, Setup, wait_until};
use nix::sys::signal::Signal;

const CLIENTS: usize = 200;
const SLOTS: usize = 16;
/// How long the runs in progress may take to end on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(40);

/// How one post ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    /// The complete answer of the run.
    Answered,
    /// A complete answer too: the service cancelled the run.
    Cancelled,
    /// 429 with Retry-After.
    Busy,
    /// 503 with Retry-After.
    Draining,
    /// The connection was refused.
    NotConnected,
    /// Closed without an answer.
    TurnedAway,
    /// Closed in the middle of an answer.
    Cut,
    /// No connection or no answer, although no signal had been sent when the client posted.
    Lost,
}

/// Two hundred clients, what they post and how each post ended.
struct Crowd {
    address: SocketAddr,
    /// What each run does between its first and last line of output.
    script: &'static str,
    /// Set before the first signal is sent.
    told: AtomicBool,
    posted: AtomicUsize,
    fates: Mutex<BTreeMap<Fate, usize>>,
}

impl Crowd {
    fn of(service: &Service, script: &'static str) -> Self {
        Self {
            address: service.address,
            script,
            told: AtomicBool::new(false),
            posted: AtomicUsize::new(0),
            fates: Mutex::default(),
        }
    }

    fn count(&self, fate: Fate) -> usize {
        self.fates.lock().unwrap().get(&fate).copied().unwrap_or(0)
    }

    /// Lets the clients post until each has seen that the service stops, calls `rehearse`
    /// meanwhile, and prints how the posts ended.
    fn rehearse(&self, what: &str, rehearse: impl FnOnce()) {
        thread::scope(|scope| {
            for client in 0..CLIENTS {
                scope.spawn(move || self.post_on(client % 2 == 0));
            }
            rehearse();
        });
        let fates = self.fates.lock().unwrap();
        let posted = self.posted.load(Ordering::Relaxed);
        println!("{what}: {posted} posts of {CLIENTS} clients: {fates:?}");
        assert_eq!(fates.values().sum::<usize>(), posted, "a post without a result");
    }

    fn tell(&self, service: &Service, signal: Signal) {
        self.told.store(true, Ordering::SeqCst);
        service.signal(signal);
    }

    fn post_on(&self, streams: bool) {
        loop {
            let number = self.posted.fetch_add(1, Ordering::Relaxed);
            let told = self.told.load(Ordering::SeqCst);
            let fate = match self.post(number, streams) {
                Fate::NotConnected | Fate::TurnedAway if !told => Fate::Lost,
                fate => fate,
            };
            *self.fates.lock().unwrap().entry(fate).or_default() += 1;
            match fate {
                Fate::Answered => {}
                // Earlier than Retry-After asks, to keep the service busy.
                Fate::Busy => thread::sleep(Duration::from_millis(50)),
                _ => return,
            }
        }
    }

    fn post(&self, number: usize, streams: bool) -> Fate {
        let Some(mut client) = Client::try_connect(self.address) else { return Fate::NotConnected };
        let script = format!("echo began {number}; {}; echo ended {number}", self.script);
        let accept = if streams { "accept: text/event-stream\r\n" } else { "" };
        let headers = format!("{accept}connection: close\r\n");
        if !client.try_send(post(&headers, solution(&script).to_string())) {
            return Fate::TurnedAway;
        }
        let answer = String::from_utf8(client.rest()).unwrap();
        if answer.is_empty() { Fate::TurnedAway } else { fate_of(&answer, number, streams) }
    }
}

/// How the run with this number ended, by `answer`, which is everything up to the end of the
/// connection.
fn fate_of(answer: &str, number: usize, streams: bool) -> Fate {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else { return Fate::Cut };
    let status = head.split(' ').nth(1).unwrap();
    if status == "200" && streams {
        // The last event and the empty chunk that ends the answer.
        if !body.contains("event: result") || !body.ends_with("0\r\n\r\n") {
            return Fate::Cut;
        }
    } else {
        let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
        if lengths.next().is_none_or(|length| length.parse() != Ok(body.len())) {
            return Fate::Cut;
        }
    }
    let retry = head.lines().any(|line| line == "retry-after: 1");
    match status {
        "200" if body.contains("\"exit_code\":null") => Fate::Cancelled,
        "200" => {
            let lines = [format!("began {number}\\n"), format!("ended {number}\\n")];
            let whole = lines.iter().all(|line| body.contains(line));
            assert!(whole && body.contains("\"exit_code\":0"), "{answer}");
            Fate::Answered
        }
        "429" if retry => Fate::Busy,
        "503" if retry => Fate::Draining,
        _ => panic!("neither an answer nor a refusal: {answer}"),
    }
}

fn setup() -> Setup {
    Setup::shell().env("RUN_CONCURRENCY", SLOTS.to_string()).env("SHUTDOWN_GRACE", "10s")
}

#[test]
fn no_accepted_run_of_two_hundred_clients_is_lost_in_a_drain() {
    let _alone = alone();
    let mut service = setup().start();
    let footprint = Footprint::of(service.pid());
    let crowd = Crowd::of(&service, "sleep 0.5");
    crowd.rehearse("SIGTERM", || {
        wait_until("the first answers", PATIENCE, || crowd.count(Fate::Answered) >= 50);
        crowd.tell(&service, Signal::SIGTERM);
        let told = Instant::now();
        assert_eq!(service.wait_end(PATIENCE).code(), Some(0));
        let took = told.elapsed();
        println!("it ended {} ms after the signal", took.as_millis());
        assert!(took < Duration::from_secs(10), "{took:?}: the grace was used up");
    });
    assert!(crowd.count(Fate::Draining) > 0, "no request was refused");
    assert_eq!([Fate::Lost, Fate::Cut, Fate::Cancelled].map(|fate| crowd.count(fate)), [0; 3]);
    footprint.assert_gone();
}

#[test]
fn two_hundred_clients_get_complete_answers_after_a_second_signal() {
    let _alone = alone();
    let mut service = setup().start();
    let footprint = Footprint::of(service.pid());
    let crowd = Crowd::of(&service, "sleep 60");
    crowd.rehearse("SIGTERM twice", || {
        wait_until("every slot to be busy", PATIENCE, || crowd.count(Fate::Busy) >= 100);
        crowd.tell(&service, Signal::SIGTERM);
        wait_until("answers from the drain", PATIENCE, || crowd.count(Fate::Draining) > 100);
        service.signal(Signal::SIGTERM);
        assert_eq!(service.wait_end(PATIENCE).code(), Some(0));
    });
    assert_eq!(crowd.count(Fate::Cancelled), SLOTS);
    assert_eq!([Fate::Lost, Fate::Cut, Fate::Answered].map(|fate| crowd.count(fate)), [0; 3]);
    footprint.assert_gone();
}

#[test]
fn the_next_start_cleans_up_after_a_kill_during_a_drain() {
    let _alone = alone();
    let mut service = setup().start();
    let footprint = Footprint::of(service.pid());
    let crowd = Crowd::of(&service, "sleep 60");
    let mut left = Vec::new();
    crowd.rehearse("SIGTERM, SIGKILL", || {
        wait_until("every slot to be busy", PATIENCE, || crowd.count(Fate::Busy) >= 100);
        crowd.tell(&service, Signal::SIGTERM);
        wait_until("answers from the drain", PATIENCE, || crowd.count(Fate::Draining) > 0);
        left = tenants(service.pid());
        service.kill();
    });
    assert!(left.len() >= SLOTS, "{left:?}");
    assert!(crowd.count(Fate::Lost) + crowd.count(Fate::Cut) >= SLOTS, "live runs were answered");
    wait_until("the tenants to die", PATIENCE, || !left.iter().any(Process::is_alive));
    let next = Setup::shell().start();
    wait_until("the cleanup", PATIENCE, || footprint.is_gone());
    assert_eq!(next.run("echo hi").stdout(), "hi\n");
}
