//! The most system calls that there may be. Whoever takes calls away lowers them; whoever adds
//! some says in the commit what for.
//!
//! The figures are what `cargo test --test syscalls -- --nocapture` printed when they were set:
//! on Linux 6.18 with four version 1 cgroup hierarchies, user namespaces and Landlock, whose
//! root of Debian has seven directories and links to show.

/// What was counted of each part of a run, in the median of the runs.
#[derive(Debug)]
pub struct Ceilings {
    /// By our threads, but for their waiting.
    pub ours: usize,
    /// In the box, until there is a program.
    pub in_box: usize,
    /// Of both, what was before the answer.
    pub path: usize,
}

impl Ceilings {
    /// The same with `more` calls by our threads.
    pub fn and(&self, more: usize) -> Self {
        Self { ours: self.ours + more, in_box: self.in_box, path: self.path + more }
    }
}

/// `POST /run` of `:`, as the service is by default: most of it before the request and behind the
/// answer, where about a hundred are those that look whether a network namespace was used. How many of
/// the next box's fall between the two varies: 208 where none did when this was set. One
/// writes the run's line into the log, three read how many processes were killed for want of memory.
/// Three calls in the box and two of ours are for the listener of file locks.
pub const RUN: Ceilings = Ceilings { ours: 355, in_box: 319, path: 451 };
/// The same without boxes that are made ahead.
pub const RUN_WITHOUT_STANDBY: Ceilings = Ceilings { ours: 312, in_box: 319, path: 553 };
/// `cofferdam exec -- /bin/true`, all of it, where no other server lives. Three read how many
/// processes were killed for want of memory, three are about its own limit of file sizes, two ask
/// whether there can be such listeners.
pub const EXEC: Ceilings = Ceilings { ours: 544, in_box: 315, path: 859 };
/// By which it finds out of each other server that it does live.
pub const PER_OTHER_SERVER: usize = 4;

/// So many more another host may need: for its cgroups, for what its root has to be shown or
/// covered, for capabilities of later kernels.
pub const HOSTS_DIFFER_BY: usize = 8;
/// The calls by which our threads wait for each other, of a run: 16 to 21 when this was set.
/// Which of them are made is a matter of who is faster.
pub const WAITING_MAX: usize = 32;
