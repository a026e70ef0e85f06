//! Sandboxes of others that are one command, or a few, for each run.

use std::io::ErrorKind;
use std::process::{Command, Output, Stdio};

use super::{Limits, Prepared, Sandbox, built, found};

/// What a sandbox runs for a program.
type CommandOf = Box<dyn Fn(&[&str]) -> Vec<Vec<String>> + Send>;

/// Each run is these commands, one after the other.
pub struct Commands(pub CommandOf);

impl Sandbox for Commands {
    fn run(&mut self, program: &[&str]) -> Result<(), String> {
        (self.0)(program).iter().try_for_each(|words| run(words))
    }

    fn commands(&self, program: &[&str]) -> Option<Vec<Vec<String>>> {
        Some((self.0)(program))
    }
}

/// A sandbox whose run is `words` and then the program.
pub fn before(words: &[&str], more: Vec<String>) -> Box<dyn Sandbox> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain(more).collect();
    Box::new(Commands(Box::new(move |program| vec![with(&words, program)])))
}

fn with(words: &[String], program: &[&str]) -> Vec<String> {
    words.iter().cloned().chain(program.iter().map(|word| (*word).to_owned())).collect()
}

/// Runs a command without streams, which must succeed. Only a failure costs a second run, whose stderr says why.
fn run(words: &[String]) -> Result<(), String> {
    let command = || {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
        command
    };
    let name = words[0].rsplit('/').next().unwrap_or_default();
    let why = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => format!("{name} is not installed"),
        _ => format!("{name}: {error}"),
    };
    let status = command().stderr(Stdio::null()).status().map_err(why)?;
    if status.success() {
        return Ok(());
    }
    let Output { status, stderr, .. } = command().output().map_err(why)?;
    let said = String::from_utf8_lossy(&stderr).into_owned();
    Err(format!("{name}: {status}: {}", said.lines().next().unwrap_or_default()))
}

/// Uses the namespaces of a sandbox and a similar root. It has no limits.
pub fn bubblewrap(_limits: Option<Limits>) -> Prepared {
    let words = [
        "bwrap",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-net",
        "--unshare-cgroup",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",
    ];
    Ok(before(&words, Vec::new()))
}

const ISOLATE: [&str; 3] = ["isolate", "--silent", "--box-id=97"];

/// As a grader uses it: creates a box, uses it once and removes it.
pub fn isolate(limits: Option<Limits>) -> Prepared {
    Ok(Box::new(Commands(Box::new(move |program| {
        vec![isolate_step("--init"), isolate_program(limits, program), isolate_step("--cleanup")]
    }))))
}

/// Runs in an existing box that all runs share.
pub fn isolate_run(limits: Option<Limits>) -> Prepared {
    run(&isolate_step("--init"))?;
    let kept = Kept;
    Ok(Box::new(Commands(Box::new(move |program| {
        let _kept = &kept;
        vec![isolate_program(limits, program)]
    }))))
}

fn isolate_step(step: &str) -> Vec<String> {
    ISOLATE.iter().chain(&[step]).map(|word| (*word).to_owned()).collect()
}

fn isolate_program(limits: Option<Limits>, program: &[&str]) -> Vec<String> {
    let mut words = isolate_step("--run");
    if let Some(Limits { memory_mib, processes, cpu_seconds, wall_seconds }) = limits {
        words.extend([
            format!("--mem={}", memory_mib * 1024),
            format!("--processes={processes}"),
            format!("--time={cpu_seconds}"),
            format!("--wall-time={wall_seconds}"),
        ]);
    }
    words.push("--".to_owned());
    with(&words, program)
}

/// Removes the box when dropped.
struct Kept;

impl Drop for Kept {
    fn drop(&mut self) {
        // A leftover box affects no figure.
        let _ = run(&isolate_step("--cleanup"));
    }
}

pub fn nsjail(limits: Option<Limits>) -> Prepared {
    found("nsjail")?;
    let more = match limits {
        Some(Limits { memory_mib, processes, cpu_seconds, wall_seconds }) => vec![
            format!("--rlimit_as={memory_mib}"),
            format!("--rlimit_nproc={processes}"),
            format!("--rlimit_cpu={cpu_seconds}"),
            format!("--time_limit={wall_seconds}"),
        ],
        None => Vec::new(),
    };
    let more = more.into_iter().chain(["--".to_owned()]).collect();
    Ok(before(&["nsjail", "--mode", "o", "--really_quiet", "--chroot", "/"], more))
}

/// Not compared: if both versions of cgroups are mounted, crun starts only with one of them hidden
/// by a mount. The benchmark makes no mounts, so that it leaves none behind.
pub fn crun(_limits: Option<Limits>) -> Prepared {
    Err("crun refuses hosts that mount both versions of cgroups".to_owned())
}

/// Shows what a program needs of the host, as our root does. It limits no CPU time.
pub fn sandlock(limits: Option<Limits>) -> Prepared {
    let binary = built("sandlock")?.to_string_lossy().into_owned();
    let read = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"];
    let mut more: Vec<String> =
        read.iter().flat_map(|path| ["-r", path]).map(str::to_owned).collect();
    more.extend(["-w".to_owned(), "/tmp".to_owned()]);
    if let Some(Limits { memory_mib, processes, wall_seconds, .. }) = limits {
        more.extend([
            format!("--max-memory={memory_mib}M"),
            format!("--max-processes={processes}"),
            format!("--timeout={wall_seconds}"),
        ]);
    }
    more.push("--".to_owned());
    Ok(before(&[&binary, "run"], more))
}
