//! Other sandboxes, each running `/bin/true` from start to end; one that cannot run is left out
//! with the reason.

use std::process::Command;

use crate::bare::succeed;
use crate::stats::millis;

/// Runs a peer once and returns how long it took.
pub type Go = Box<dyn FnMut() -> f64>;

/// The row of a peer, and a function that prepares it or returns why it cannot.
pub type Peer = (&'static str, fn() -> Result<Go, String>);

pub const PEERS: [Peer; 5] = [
    ("exec_bubblewrap", bubblewrap),
    ("exec_isolate", isolate),
    ("exec_isolate_run", isolate_run),
    ("exec_nsjail", nsjail),
    ("exec_crun", crun),
];

const BOX_ID: &str = "--box-id=97";

/// Uses the namespaces of a sandbox and a similar root.
fn bubblewrap() -> Result<Go, String> {
    let command = || {
        let mut command = Command::new("bwrap");
        command.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-net"]);
        command.args(["--unshare-cgroup", "--ro-bind", "/", "/", "--proc", "/proc"]);
        command.args(["--dev", "/dev", "--tmpfs", "/tmp", "/bin/true"]);
        command
    };
    ready(&mut command())?;
    Ok(Box::new(move || millis(|| succeed(&mut command()))))
}

/// As a grader uses it: creates a box, uses it once and removes it.
fn isolate() -> Result<Go, String> {
    for step in ISOLATE_STEPS {
        ready(&mut isolate_step(step))?;
    }
    Ok(Box::new(|| {
        millis(|| ISOLATE_STEPS.iter().for_each(|step| succeed(&mut isolate_step(step))))
    }))
}

/// Runs in an existing box that all runs share.
fn isolate_run() -> Result<Go, String> {
    let [init, run, cleanup] = ISOLATE_STEPS;
    ready(&mut isolate_step(init))?;
    ready(&mut isolate_step(run))?;
    let kept = Removed(cleanup);
    Ok(Box::new(move || {
        let _kept = &kept;
        millis(|| succeed(&mut isolate_step(run)))
    }))
}

const ISOLATE_STEPS: [&[&str]; 3] = [&["--init"], &["--run", "--", "/bin/true"], &["--cleanup"]];

fn isolate_step(args: &[&str]) -> Command {
    let mut command = Command::new("isolate");
    command.args(["--silent", BOX_ID]).args(args);
    command
}

/// Removes its box when dropped.
struct Removed(&'static [&'static str]);

impl Drop for Removed {
    fn drop(&mut self) {
        // A leftover box affects no figure.
        let _ = ready(&mut isolate_step(self.0));
    }
}

fn nsjail() -> Result<Go, String> {
    let command = || {
        let mut command = Command::new("nsjail");
        command.args(["--mode", "o", "--really_quiet", "--chroot", "/", "--", "/bin/true"]);
        command
    };
    ready(&mut command())?;
    Ok(Box::new(move || millis(|| succeed(&mut command()))))
}

/// Not compared: if both versions of cgroups are mounted, crun starts only with one of them hidden
/// by a mount. The benchmark makes no mounts, so that it leaves none behind.
fn crun() -> Result<Go, String> {
    Err("crun refuses hosts that mount both versions of cgroups".to_owned())
}

/// Tries a command once; returns the first line of its output if it fails.
fn ready(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(format!("{name} is not installed"));
        }
        Err(error) => return Err(format!("{name}: {error}")),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{name}: {}: {}", output.status, said.lines().next().unwrap_or_default()))
}
