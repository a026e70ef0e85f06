//! A server in its own process: this test binary, started again for one test.

use std::env;
use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::{Client, start_echo};

const ROLE: &str = "COFFERDAM_TEST_SERVER";

/// Whether this process was started as the server.
pub fn is_server() -> bool {
    env::var_os(ROLE).is_some()
}

/// Serves until standard input ends, with at most `descriptors_spare`
/// descriptors in addition to those open once the server runs.
pub fn serve(descriptors_spare: Option<u64>) {
    let server = start_echo();
    // An answer proves that the server runs and has opened its descriptors.
    assert_eq!(server.ask(crate::support::HEALTH).status, 200);
    if let Some(spare) = descriptors_spare {
        let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, open + spare, hard).unwrap();
    }
    println!("address={}", server.address);
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// The server process; dropping this ends it.
pub struct ServerProcess {
    child: Child,
    address: SocketAddr,
    /// Held open because a test runner that cannot print fails.
    _printed: BufReader<ChildStdout>,
}

/// Starts this binary again to run only `test`, which must call [`serve`].
pub fn start_process(test: &str) -> ServerProcess {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut printed = BufReader::new(child.stdout.take().unwrap());
    let address = printed
        .by_ref()
        .lines()
        .map_while(Result::ok)
        .find_map(|line| Some(line.split_once("address=")?.1.parse().unwrap()))
        .expect("an address");
    ServerProcess { child, address, _printed: printed }
}

impl ServerProcess {
    pub fn connect(&self) -> Client {
        Client::of(TcpStream::connect(self.address).unwrap())
    }

    /// The current number of threads.
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap().count()
    }

    /// The CPU time used so far.
    pub fn cpu(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap();
        let behind_name = stat.rsplit_once(") ").unwrap().1;
        let ticks: u64 =
            behind_name.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
        // USER_HZ is 100 on every Linux.
        Duration::from_millis(ticks * 10)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "the server ended with {status}");
    }
}
