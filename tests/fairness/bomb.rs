//! A tenant that does the same harm over and over, and the bound on what others feel of it.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cofferdam_test_server::client::{post, solution_within};
use cofferdam_test_server::host::{alone, tenants};
use cofferdam_test_server::service::{Service, Setup, wait_until};

use crate::latency::Latency;

/// How long a bomb may take to go off, and to be gone: whoever starts 250 loops shares its CPU
/// with those that it has started, and with whatever else the machine does.
const PATIENCE: Duration = Duration::from_secs(50);
/// How many times as long as beside processes that only compute a neighbour may take beside those
/// that have the kernel work for them.
const WORSE_TIMES_MAX: u32 = 2;
/// How often a bound is tried to be kept: the machine may be busy with something else.
const TRIES: usize = 5;

/// What one or more tenants do.
pub struct Bomb {
    /// What the table calls it.
    pub name: &'static str,
    /// What each tenant runs.
    pub script: &'static str,
    /// How many tenants run it at once.
    pub tenants: usize,
    /// How many processes, threads not counted, it has when it has gone off.
    pub processes: usize,
    /// How long each tenant lets it run before it posts it again.
    pub timeout: &'static str,
    /// Whether the tenants take the output, of which there is no limit, as it comes.
    pub streams: bool,
}

impl Bomb {
    pub fn of(name: &'static str, script: &'static str, processes: usize) -> Self {
        Self { name, script, tenants: 1, processes, timeout: "60s", streams: false }
    }

    /// Two tenants with it at once.
    pub fn twice(mut self) -> Self {
        (self.tenants, self.processes) = (2, 2 * self.processes);
        self
    }

    /// Holds the service to its bounds with the bomb beside a neighbour, in one of [`TRIES`].
    #[track_caller]
    pub fn disturbs_nobody(&self) {
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

    /// Holds the service to let neighbours wait beside the bomb at most [`WORSE_TIMES_MAX`] as long
    /// as beside `control`, measured just before, in one of [`TRIES`].
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

    /// The figures; none on a host that divides no CPU time among boxes.
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
        // It was there all the time, or there again and again.
        self.wait_armed(&service);
        assert!(bombers.iter().all(Bomber::was_let_in), "{}: never ran", self.name);
        drop(bombers);
        wait_until("the end of the bomb", PATIENCE, || tenants(service.pid()).is_empty());
        latency.quiet_again(&service);
        Some(latency)
    }

    #[track_caller]
    fn wait_armed(&self, service: &Service) {
        wait_until(self.name, PATIENCE, || tenants(service.pid()).len() >= self.processes);
    }
}

/// Whether boxes have a CPU controller, as the service says when it starts.
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

/// One tenant: it posts its bomb, again whenever that has ended. Dropping it ends both.
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
                    // A server that cannot be reached is found out by whoever measures.
                    let _ = shared.post(address, &request);
                }
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// Whether a bomb of it has run, or still does.
    fn was_let_in(&self) -> bool {
        let live = self.shared.lock().is_some();
        live || self.shared.let_in.load(Ordering::SeqCst) > 0
    }
}

impl Shared {
    /// Posts `request` and throws the answer away.
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
                // It may be closed already.
                let _ = socket.shutdown(Shutdown::Both);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = thread.join();
    }
}
