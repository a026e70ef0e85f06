//! The resource use of a server and its peak during an attack.

use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::client::request;
use cofferdam_test_server::host::{resident_bytes, threads_and_descriptors};
use cofferdam_test_server::service::Service;

/// The pause between two measurements, and between two probes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// The shortest time to watch what an attack holds.
const HELD_FOR: Duration = Duration::from_millis(300);

/// The connections that an attack keeps open.
pub type Held = Box<dyn Any>;

/// How another client probes during the attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Probe {
    /// On a new connection each time.
    Fresh,
    /// On a connection opened before the attack.
    Kept,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerUsage {
    pub resident_bytes: u64,
    pub threads: usize,
    pub descriptors: usize,
}

impl ServerUsage {
    pub fn of(service: &Service) -> Self {
        let (threads, descriptors) = threads_and_descriptors(service.pid());
        Self { resident_bytes: resident_bytes(service.pid()), threads, descriptors }
    }

    /// The usage once its counts have not changed for a tenth of a second.
    pub fn settled(service: &Service) -> Self {
        let (mut last, mut since) = (Self::of(service), Instant::now());
        while since.elapsed() < Duration::from_millis(100) {
            thread::sleep(LOOK_EVERY);
            let now = Self::of(service);
            if (now.threads, now.descriptors) != (last.threads, last.descriptors) {
                since = Instant::now();
            }
            last = now;
        }
        last
    }

    pub fn growth_since(&self, before: &Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes.saturating_sub(before.resident_bytes),
            threads: self.threads.saturating_sub(before.threads),
            descriptors: self.descriptors.saturating_sub(before.descriptors),
        }
    }

    pub fn is_within(&self, max: &Self) -> bool {
        self.max(max) == *max
    }

    fn max(&self, other: &Self) -> Self {
        Self {
            resident_bytes: self.resident_bytes.max(other.resident_bytes),
            threads: self.threads.max(other.threads),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }
}

/// The highest usage, and the longest probe of another client.
#[derive(Debug, Clone, Copy)]
pub struct Peak {
    pub usage: ServerUsage,
    pub health_max: Duration,
    pub probes: usize,
}

/// Runs `attack`, and watches the server until the attack has held its connections for a while.
#[track_caller]
pub fn watch(service: &Service, probe: Probe, attack: impl FnOnce() -> Held) -> (Held, Peak) {
    let over = AtomicBool::new(false);
    let mut kept = service.connect();
    assert_eq!(kept.ask(request("GET", "/health", "")).status, 200);
    let (held, usage, (health_max, probes)) = thread::scope(|scope| {
        let over = &over;
        let looking = scope.spawn(|| look(service, over));
        let probing = scope.spawn(move || {
            let (mut longest, mut probes) = (Duration::ZERO, 0);
            while !over.load(Ordering::SeqCst) {
                let start = Instant::now();
                let health = request("GET", "/health", "");
                let answer = match probe {
                    Probe::Fresh => service.ask(health),
                    Probe::Kept => kept.ask(health),
                };
                longest = longest.max(start.elapsed());
                answer.assert_text(200, "ok\n");
                probes += 1;
                thread::sleep(LOOK_EVERY);
            }
            (longest, probes)
        });
        let held = attack();
        thread::sleep(HELD_FOR);
        over.store(true, Ordering::SeqCst);
        (held, looking.join().unwrap(), probing.join().unwrap())
    });
    assert!(probes >= 3, "too few probes during the attack");
    (held, Peak { usage, health_max, probes })
}

fn look(service: &Service, over: &AtomicBool) -> ServerUsage {
    let mut highest = ServerUsage::of(service);
    while !over.load(Ordering::SeqCst) {
        highest = highest.max(&ServerUsage::of(service));
        thread::sleep(LOOK_EVERY);
    }
    highest
}
