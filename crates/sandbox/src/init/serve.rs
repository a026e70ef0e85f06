//! PID 1 of a sandbox that lasts: starts programs for the supervisor until that closes its socket.
//!
//! It has entered all restrictions but the tenant's filter before it gets here, so every program has
//! them from its first instruction on, and all share one Landlock domain. A request is the plan of
//! one program, with the program's descriptors. Nothing from inside the sandbox is read.

use crate::sys::{self, CloneArgs, ControlMessage, PollFd};
use crate::wire::{
    ENDED, PLAN_ADDRESS, PLAN_BYTES_MAX, PLAN_FD, PROGRAM_FDS_MAX, ProgramStart, RELEASE_FD,
    START_REPLY_BYTES, START_REQUEST_BYTES, STATUS_FD, StartReply,
};

/// Programs whose main processes have not ended.
const PROGRAMS_MAX: usize = 256;

const EAGAIN: i32 = 11;
const EBADF: i32 = 9;
const EINTR: i32 = 4;
const ECHILD: i32 = 10;

/// A program whose main process has not ended. The number 0 stands for none.
#[derive(Clone, Copy)]
struct Served {
    pid: u64,
    status_fd: u64,
}

const NONE: Served = Served { pid: 0, status_fd: 0 };

/// Why the sandbox ends.
pub enum ServeEnd {
    /// The supervisor is gone.
    Closed,
    /// A call failed that never does.
    Failed,
}

/// Serves until the supervisor closes its socket. In a new child it calls `program`, which does not
/// return.
pub fn serve(program: fn() -> !) -> ServeEnd {
    match try_serve(program) {
        Ok(()) => ServeEnd::Closed,
        Err(_) => ServeEnd::Failed,
    }
}

fn try_serve(program: fn() -> !) -> Result<(), i32> {
    // Above the numbers of a program's descriptors, which so arrive at exactly their places.
    let control = sys::move_up(RELEASE_FD as u64, PROGRAM_FDS_MAX as u64)?;
    close_low()?;
    sys::unmap(PLAN_ADDRESS, PLAN_BYTES_MAX)?;
    let low = sys::child_signals()?;
    let ends = sys::move_up(low, PROGRAM_FDS_MAX as u64)?;
    close_low()?;
    let mut served = [NONE; PROGRAMS_MAX];
    loop {
        let mut fds = [PollFd::readable(control), PollFd::readable(ends)];
        match sys::poll(&mut fds) {
            Ok(()) | Err(EINTR) => {}
            Err(errno) => return Err(errno),
        }
        let [request, end] = fds;
        if end.happened() {
            sys::drain(ends);
            reap(&mut served)?;
        }
        if request.happened() && !answer(control, &mut served, program)? {
            return Ok(());
        }
    }
}

fn close_low() -> Result<(), i32> {
    sys::close_range(0, PROGRAM_FDS_MAX as u64 - 1)
}

/// Reaps every dead child, and reports the ends of programs.
fn reap(served: &mut [Served; PROGRAMS_MAX]) -> Result<(), i32> {
    loop {
        let (pid, status) = match sys::reap_any() {
            Ok((0, _)) | Err(ECHILD) => return Ok(()),
            Ok(ended) => ended,
            Err(errno) => return Err(errno),
        };
        if let Some(program) = served.iter_mut().find(|program| program.pid == pid) {
            // It fails if the host no longer waits for the program.
            let _ = sys::write_record(program.status_fd as i32, ENDED, 0, status);
            sys::close(program.status_fd);
            *program = NONE;
        }
    }
}

/// Receives one request and answers it. False if the supervisor is gone.
fn answer(
    control: u64,
    served: &mut [Served; PROGRAMS_MAX],
    program: fn() -> !,
) -> Result<bool, i32> {
    let mut request = ProgramStart { descriptors: 0, into_group: 0 };
    let mut message = ControlMessage::new(&raw mut request as u64, START_REQUEST_BYTES);
    let bytes = match message.receive(control) {
        Err(EAGAIN | EINTR) => return Ok(true),
        bytes => bytes?,
    };
    if bytes == 0 {
        return Ok(false);
    }
    let started = if bytes == START_REQUEST_BYTES as u64 && message.came_to_low(request.descriptors)
    {
        start(&request, served, program)
    } else {
        Err(EBADF)
    };
    let mut reply = match started {
        Ok((pid, _)) => StartReply { errno: 0, pid: pid as i32 },
        Err(errno) => StartReply { errno, pid: 0 },
    };
    let mut answer = ControlMessage::new(&raw mut reply as u64, START_REPLY_BYTES);
    let sent = answer.send(control, started.ok().map(|(_, pidfd)| pidfd));
    close_low()?;
    sent.map(|()| true)
}

/// Clones the program's process; returns its number and a descriptor of it.
fn start(
    request: &ProgramStart,
    served: &mut [Served; PROGRAMS_MAX],
    program: fn() -> !,
) -> Result<(u64, i32), i32> {
    let Some(free) = served.iter_mut().find(|program| program.pid == 0) else {
        return Err(EAGAIN);
    };
    let status_fd = sys::move_up(STATUS_FD as u64, PROGRAM_FDS_MAX as u64)?;
    let mut pidfd = -1;
    // The last descriptor is the group's.
    let group = request.descriptors.saturating_sub(1);
    let cloned = if request.into_group == 0 {
        sys::clone_with_pidfd(&mut pidfd)
    } else {
        sys::clone3(&CloneArgs::into_group(&mut pidfd, group))
    };
    match cloned {
        Ok(0) => {
            // The sockets of all others: nothing of them may reach the program.
            let _ = sys::close_range(PROGRAM_FDS_MAX as u64, u32::MAX as u64);
            program()
        }
        Ok(pid) => {
            *free = Served { pid, status_fd };
            Ok((pid, pidfd))
        }
        Err(errno) => {
            sys::close(status_fd);
            Err(errno)
        }
    }
}

/// Maps the plan that a program's process was given.
pub fn map_own_plan() -> Result<(), i32> {
    sys::map_plan(PLAN_FD, PLAN_ADDRESS, PLAN_BYTES_MAX)
}
