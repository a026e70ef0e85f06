//! A tenant that repeats the same attack, and the bounds on how much others notice.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cofferdam_test_server::alone::alone;
use cofferdam_test_server::client::{post, solution_within};
use cofferdam_test_server::host::tenants;
use cofferdam_test_server::service::{Service, Setup, wait_until};

use crate::latency::Latency;

/// How long a bomb may take to reach its full size and to be gone. A tenant that starts 250 loops
/// shares its CPU time with the loops already started and with the rest of the machine.
const PATIENCE: Duration = Duration::from_secs(50);
/// How many times longer a neighbour may take beside processes that keep the kernel busy than
/// beside processes that only compute.
const WORSE_TIMES_MAX: u32 = 2;
/// The number of attempts, because the machine may be busy with something else.
const TRIES: usize = 5;

/// What one or more tenants run.
pub struct Bomb {
    /// Its name in the table.
    pub name: &'static str,
    /// The script of each tenant.
    pub script: &'static str,
    /// The number of tenants that run it at once.
    pub tenants: usize,
    /// The number of processes, without threads, at its full size.
    pub processes: usize,
    /// The timeout of each run, after which the tenant posts it again.
    pub timeout: &'static str,
    /// Whether the tenants read the output as it comes, without an output limit.
    pub streams: bool,
}

impl Bomb {
    pub fn of(name: &'static str, script: &'static str, processes: usize) -> Self {
        Self { name, script, tenants: 1, processes, timeout: "60s", streams: false }
    }

    /// Two tenants at once.
    pub fn twice(mut self) -> Self {
        (self.tenants, self.processes) = (2, 2 * self.processes);
        self
    }

    /// Checks the bounds for a neighbour of the bomb, in one of [`TRIES`].
    #[track_caller]
    pub fn assert_fair(&self) {
        let _alone = alone();
        let mut tries = Vec::new();
        for _ in 0..TRIES {
            let Some(latency) = self.try_once() else { return };
            println!("{:22} {latency}", self.name);
            if latency.is_within_bounds() {
                return;
            }
            tries.push(latency.to_string());
        }
        panic!("{}:\n{}", self.name, tries.join("\n"));
    }

    /// Checks that neighbours of the bomb wait at most [`WORSE_TIMES_MAX`] times as long as
    /// neighbours of `control`, measured just before, in one of [`TRIES`].
    #[track_caller]
    pub fn disturbs_little_more_than(&self, control: &Self) {
        let _alone = alone();
        let mut tries = Vec::new();
        for _ in 0..TRIES {
            let (Some(beside_control), Some(latency)) = (control.try_once(), self.try_once())
            else {
                return;
            };
            let lines = format!("{:22} {beside_control}\n{:22} {latency}", control.name, self.name);
            println!("{lines}");
            if latency.is_within(WORSE_TIMES_MAX, &beside_control) {
                return;
            }
            tries.push(lines);
        }
        panic!("{}:\n{}", self.name, tries.join("\n"));
    }

    /// The measurements, or `None` on a host without CPU control for sandboxes.
    #[track_caller]
    fn try_once(&self) -> Option<Latency> {
        let setup =
            if self.streams { Setup::shell().env("RUN_OUTPUT_MAX", "0") } else { Setup::shell() };
        let service = setup.start();
        if !divides_cpus(&service) {
            return None;
        }
        let mut latency = Latency::quiet(&service);
        let bombers: Vec<Bomber> =
            (0..self.tenants).map(|_| Bomber::start(&service, self)).collect();
        self.wait_armed(&service);
        latency.beside(&service);
        // The bomb ran all the time, or was repeated.
        self.wait_armed(&service);
        assert!(bombers.iter().all(Bomber::was_let_in), "{}: never ran", self.name);
        drop(bombers);
        wait_until("the bomb to end", PATIENCE, || tenants(service.pid()).is_empty());
        latency.quiet_again(&service);
        Some(latency)
    }

    #[track_caller]
    fn wait_armed(&self, service: &Service) {
        wait_until(self.name, PATIENCE, || tenants(service.pid()).len() >= self.processes);
    }
}

/// Whether sandboxes have a CPU controller, by the start line of the service.
#[track_caller]
fn divides_cpus(service: &Service) -> bool {
    let divides = service.log.text().contains(r#""cpu":"cgroup"#);
    if !divides {
        let required = std::env::var_os("REQUIRE_PRIVILEGED").is_some_and(|value| value == "1");
        assert!(!required, "the host lacks a CPU controller, and REQUIRE_PRIVILEGED=1");
        eprintln!("SKIP: the host lacks a CPU controller");
    }
    divides
}

/// One tenant, which posts its bomb again whenever the run ends. Dropping it ends both.
struct Bomber {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    let_in: AtomicUsize,
    socket: Mutex<Option<TcpStream>>,
}

impl Bomber {
    fn start(service: &Service, bomb: &Bomb) -> Self {
        let shared = Arc::new(Shared::default());
        let accept = if bomb.streams { "accept: text/event-stream\r\n" } else { "" };
        let headers = format!("connection: close\r\n{accept}");
        let request = post(&headers, solution_within(bomb.timeout, bomb.script).to_string());
        let thread = thread::spawn({
            let (shared, address) = (Arc::clone(&shared), service.address);
            move || {
                while !shared.stopped.load(Ordering::SeqCst) {
                    // The measuring code notices if the server cannot be reached.
                    let _ = shared.post(address, &request);
                }
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Whether its bomb has run or is running.
    fn was_let_in(&self) -> bool {
        let live = self.shared.lock().is_some();
        live || self.shared.let_in.load(Ordering::SeqCst) > 0
    }
}

impl Shared {
    /// Posts `request` and discards the answer.
    fn post(&self, address: SocketAddr, request: &[u8]) -> std::io::Result<()> {
        let mut socket = TcpStream::connect(address)?;
        *self.lock() = Some(socket.try_clone()?);
        socket.write_all(request)?;
        let mut piece = [0; 64 << 10];
        let begun = socket.read(&mut piece)?;
        let refused =
            piece[..begun].starts_with(b"HTTP/1.1 4") && !piece.starts_with(b"HTTP/1.1 413");
        self.let_in.fetch_add(usize::from(begun > 0 && !refused), Ordering::SeqCst);
        loop {
            if self.stopped.load(Ordering::SeqCst) || socket.read(&mut piece)? == 0 {
                return Ok(());
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<TcpStream>> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Bomber {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let Some(thread) = self.thread.take() else { return };
        while !thread.is_finished() {
            if let Some(socket) = &*self.shared.lock() {
                // The connection may be closed already.
                let _ = socket.shutdown(Shutdown::Both);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = thread.join();
    }
}
