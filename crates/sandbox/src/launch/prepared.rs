//! A box made ahead: all but the program, which waits to be let go.
//!
//! Every box stands before its program begins, and takes the same steps there: but
//! for its age, a tenant cannot tell one that stood for long from one made for its request.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::handshake::Message;
use super::running::Running;
use super::setup::Sandbox;
use crate::files::box_fs::BoxFs;
use crate::plan::rootfs::Covered;
use crate::supervise::SETUP_WAIT;
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, RunSpec, SetupFailure};

/// A box whose program waits. Nothing of a tenant's is in it yet. Dropped, it is killed.
#[derive(Debug)]
pub struct Standing {
    /// Until it is let go.
    running: Running,
    /// What of the host it covers.
    covered: Vec<Covered>,
}

impl Sandbox {
    /// Makes the box around `fs` up to where its program would begin. Of the
    /// limits, the wall-clock time and the CPU seconds may still change. The box
    /// dies with the thread that calls this, and keeps what is `retained` until it is dead.
    pub fn stand(
        &self,
        spec: RunSpec,
        fs: BoxFs,
        retained: Retained,
    ) -> Result<Standing, SetupFailure> {
        let (mut running, covered) = self.launch(spec, fs, retained, Instant::now())?;
        running.await_standing(Deadline::after(SETUP_WAIT))?;
        Ok(Standing { running, covered })
    }

    /// Lets the program of `standing` begin, with the times of `limits`; the
    /// preparation for it began at `began`. It keeps what is `retained` too.
    pub fn release(
        &self,
        standing: Standing,
        mut limits: Limits,
        retained: Retained,
        began: Instant,
    ) -> Result<Running, SetupFailure> {
        let not_enforced = self.clamp(&mut limits);
        let Standing { mut running, .. } = standing;
        running.live.retained.extend(retained);
        running.limits = limits;
        running.prepare_began = began;
        running.let_go()?;
        Ok(running.enforcing(self.enforced(), not_enforced))
    }

    /// Whether `standing` is alive, and covers what a box made now would cover.
    pub fn is_fit(&self, standing: &Standing) -> Result<bool, SetupFailure> {
        let alive = !standing.running.is_dead();
        Ok(alive && self.covered_without_binds()? == standing.covered)
    }
}

impl Running {
    /// Waits until the box stands, its program still to begin.
    fn await_standing(&mut self, deadline: Deadline) -> Result<(), SetupFailure> {
        let failed = |error: &std::io::Error| SetupFailure::from_io("stand", error);
        loop {
            // Looked at first: what it has said stays to be heard once it is dead.
            let dead = self.is_dead();
            match self.status.next().map_err(|error| failed(&error))? {
                Some(Message::Standing) => return Ok(()),
                Some(Message::Failed { step, errno }) => {
                    return Err(SetupFailure::from_errno(self.plan.step_name(step), errno));
                }
                Some(Message::Ready { .. } | Message::Ended { .. }) => {
                    return Err(SetupFailure::from_words("stand", "the program did not wait"));
                }
                None if dead => return Err(SetupFailure::from_words("stand", "the init ended")),
                None if deadline.passed() => {
                    return Err(SetupFailure::from_errno("stand", libc::ETIMEDOUT));
                }
                None => self.wait_for_word(deadline).map_err(|errno| failed(&errno.into()))?,
            }
        }
    }

    fn wait_for_word(&self, deadline: Deadline) -> Result<(), Errno> {
        let millis = deadline.remaining().as_millis();
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let process = PollFd::new(self.live.process.pidfd.as_fd(), PollFlags::POLLIN);
        let status = self.status.pipe().map(|pipe| PollFd::new(pipe, PollFlags::POLLIN));
        let mut both: Vec<PollFd<'_>> = [Some(process), status].into_iter().flatten().collect();
        match poll(&mut both, timeout) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    fn is_dead(&self) -> bool {
        let mut process = [PollFd::new(self.live.process.pidfd.as_fd(), PollFlags::POLLIN)];
        poll(&mut process, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
    }
}
