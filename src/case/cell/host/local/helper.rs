//! The process above a command: it adopts what the command leaves behind, and kills it.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, kill};
use nix::sys::time::TimeVal;
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;

use crate::case::cell::host::descendants::kill_descendants;
use crate::case::cell::host::message::{EndedStep, StepOrder, StepReply, receive, send};

/// Runs the command that comes over stdin, a socket, and answers there how it ended. When the other end closes it
/// for writing, the command is killed. When this returns, all that the command started is dead.
///
/// # Errors
/// The other end is gone, or sends something else.
pub fn serve_step() -> io::Result<()> {
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    let order: StepOrder = receive(&mut socket)?;
    let mut stdin = vec![0; order.stdin_bytes];
    socket.read_exact(&mut stdin)?;
    let reply = match run(&order, stdin, &socket) {
        Ok(reply) => reply,
        Err((step, errno)) => StepReply::Failed { step: step.to_owned(), errno: errno as i32 },
    };
    send(&mut socket, &reply)
}

fn run(
    order: &StepOrder,
    stdin: Vec<u8>,
    socket: &UnixStream,
) -> Result<StepReply, (&'static str, Errno)> {
    set_child_subreaper(true).map_err(|errno| ("adopt orphans", errno))?;
    let errno_of = |error: &io::Error| error.raw_os_error().unwrap_or(libc::EINVAL);
    if let Err(error) = std::env::set_current_dir(&order.cwd) {
        return Ok(StepReply::BadCwd { errno: errno_of(&error) });
    }
    let began = Instant::now();
    let mut child = match spawn(order, !stdin.is_empty()) {
        Ok(child) => child,
        Err(error) => return Ok(StepReply::NotExecuted { errno: errno_of(&error) }),
    };
    if let Some(mut pipe) = child.stdin.take() {
        // A program may end without reading it.
        thread::spawn(move || pipe.write_all(&stdin));
    }
    let main = Pid::from_raw(i32::try_from(child.id()).unwrap_or(0));
    let alive = Arc::new(Mutex::new(true));
    let watched = socket.try_clone().map_err(|_| ("watch", Errno::EMFILE));
    match watched {
        Ok(watched) => drop(thread::spawn({
            let alive = Arc::clone(&alive);
            move || kill_at_end(watched, main, &alive)
        })),
        Err(failure) => {
            kill_descendants();
            return Err(failure);
        }
    }
    let ended = wait_for(main, &alive).map_err(|errno| ("wait", errno))?;
    let wall_ms = milliseconds(began.elapsed().as_millis());
    if !kill_descendants() {
        return Err(("kill", Errno::EBUSY));
    }
    Ok(StepReply::Ended(with_usage(ended, wall_ms)))
}

fn spawn(order: &StepOrder, has_stdin: bool) -> io::Result<Child> {
    let (program, arguments) = order.argv.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let stdin = if has_stdin { Stdio::piped() } else { Stdio::null() };
    // A group of its own, so that a signal to its group does not end this process.
    Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(&order.env)
        .stdin(stdin)
        .process_group(0)
        .spawn()
}

/// Kills `main` when the socket ends, if it is alive then. What is below dies with it.
fn kill_at_end(mut socket: UnixStream, main: Pid, alive: &Mutex<bool>) {
    let _ = socket.read(&mut [0]);
    if *alive.lock().unwrap_or_else(PoisonError::into_inner) {
        let _ = kill(main, Signal::SIGKILL);
    }
}

/// Reaps children until `main` is one of them.
fn wait_for(main: Pid, alive: &Mutex<bool>) -> nix::Result<WaitStatus> {
    loop {
        let dead = match waitid(Id::All, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Err(Errno::EINTR) => continue,
            dead => dead?.pid(),
        };
        // Its id can be another's once it is reaped.
        let mut alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
        if dead == Some(main) {
            *alive = false;
            return waitpid(main, None);
        }
        if let Some(orphan) = dead {
            waitpid(orphan, None)?;
        }
    }
}

/// `ended` with what all dead processes below used.
fn with_usage(ended: WaitStatus, wall_ms: u64) -> EndedStep {
    let (code, signal) = match ended {
        WaitStatus::Signaled(_, signal, _) => (0, Some(signal as i32)),
        WaitStatus::Exited(_, code) => (u8::try_from(code & 0xff).unwrap_or(0), None),
        _ => (0, None),
    };
    let (cpu_ms, memory_peak_bytes) = match getrusage(UsageWho::RUSAGE_CHILDREN) {
        Ok(usage) => {
            let peak_kib = u64::try_from(usage.max_rss()).unwrap_or(0);
            (of_time(usage.user_time()) + of_time(usage.system_time()), peak_kib << 10)
        }
        Err(_) => (0, 0),
    };
    EndedStep { code, signal, wall_ms, cpu_ms, memory_peak_bytes }
}

fn of_time(time: TimeVal) -> u64 {
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    seconds * 1000 + u64::try_from(time.tv_usec()).unwrap_or(0) / 1000
}

fn milliseconds(count: u128) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
