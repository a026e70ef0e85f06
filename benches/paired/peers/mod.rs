//! Our own sandbox and others as whole commands or requests, so that the same programs are timed and observed in
//! each. One that cannot run here is left out with the reason.

mod commands;
mod go_judge;
mod ours;

use std::env;
use std::fs;
use std::path::PathBuf;

use cofferdam_test_server::shipped::repository;

use crate::stats::millis;

/// A prepared sandbox.
pub trait Sandbox: Send {
    /// Runs the program from start to end; returns why it did not end with 0.
    fn run(&mut self, program: &[&str]) -> Result<(), String>;

    /// The commands that run the program, if they and not a server do it.
    fn commands(&self, _program: &[&str]) -> Option<Vec<Vec<String>>> {
        None
    }

    /// Milliseconds of a run, which must succeed.
    fn time(&mut self, program: &[&str]) -> f64 {
        millis(|| self.run(program).unwrap())
    }
}

/// A sandbox, or why it cannot run here.
pub type Prepared = Result<Box<dyn Sandbox>, String>;

/// Limits to set.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    pub memory_mib: u32,
    pub processes: u32,
    pub cpu_seconds: u32,
    pub wall_seconds: u32,
}

/// Limits that no program of a timed row meets.
pub const WIDE: Limits =
    Limits { memory_mib: 512, processes: 64, cpu_seconds: 10, wall_seconds: 20 };

/// A sandbox of ours or of others.
pub struct Peer {
    /// The end of the keys of its rows.
    pub key: &'static str,
    pub name: &'static str,
    pub prepare: fn(Option<Limits>) -> Prepared,
    /// Of memory, of processes and of time.
    pub has_limits: bool,
}

pub const OURS: Peer =
    Peer { key: "exec", name: "`cofferdam exec`", prepare: ours::exec, has_limits: true };
pub const OURS_SERVED: Peer =
    Peer { key: "served", name: "`/run`", prepare: ours::served, has_limits: true };

/// The others that run one command, each as a command.
pub const PEERS: [Peer; 5] = [
    Peer {
        key: "bubblewrap",
        name: "bubblewrap",
        prepare: commands::bubblewrap,
        has_limits: false,
    },
    Peer { key: "isolate", name: "isolate", prepare: commands::isolate, has_limits: true },
    Peer { key: "nsjail", name: "nsjail", prepare: commands::nsjail, has_limits: true },
    Peer { key: "crun", name: "crun", prepare: commands::crun, has_limits: false },
    Peer { key: "sandlock", name: "sandlock", prepare: commands::sandlock, has_limits: true },
];
/// In a box that all runs share.
pub const ISOLATE_RUN: Peer = Peer {
    key: "isolate_run",
    name: "isolate, its run alone",
    prepare: commands::isolate_run,
    has_limits: true,
};
/// The other that is a server.
pub const GO_JUDGE: Peer =
    Peer { key: "go_judge", name: "go-judge", prepare: go_judge::start, has_limits: true };

impl Peer {
    /// The sandbox, once it has run these programs.
    pub fn ready(&self, limits: Option<Limits>, programs: &[&[&str]]) -> Prepared {
        let mut sandbox = (self.prepare)(limits)?;
        programs.iter().try_for_each(|program| sandbox.run(program))?;
        Ok(sandbox)
    }
}

/// The binary of a peer that `make bench-peers` builds, or the reason why it is missing.
fn built(name: &str) -> Result<PathBuf, String> {
    let binary = directory().join("bin").join(name);
    if binary.exists() {
        return Ok(binary);
    }
    found(name)?;
    Err(format!("{name} is missing (`make bench-peers` was not run)"))
}

/// Fails with the reason for which `make bench-peers` has not found it.
fn found(name: &str) -> Result<(), String> {
    match fs::read_to_string(directory().join(format!("{name}.missing"))) {
        Ok(reason) => Err(format!("{name} is missing ({})", reason.trim())),
        Err(_) => Ok(()),
    }
}

fn directory() -> PathBuf {
    env::var_os("PEERS_DIR").map_or_else(|| repository().join("target/peers"), PathBuf::from)
}
