//! The ceilings of system calls. A change that saves calls lowers them. A commit that raises one
//! gives the reason.
//!
//! The numbers are what `cargo test --test syscalls -- --nocapture` printed when they were set, on
//! Linux 6.18 with four version 1 cgroup hierarchies, user namespaces and Landlock, and a Debian
//! root with seven top-level directories and links.

/// The median count of each part of a run.
#[derive(Debug)]
pub struct Ceilings {
    /// Calls of the server's threads, except waiting.
    pub ours: usize,
    /// Calls in the sandbox before the program is executed.
    pub in_box: usize,
    /// The part of both before the answer.
    pub path: usize,
}

impl Ceilings {
    /// The same with `more` calls by the server's threads.
    pub fn and(&self, more: usize) -> Self {
        Self { ours: self.ours + more, in_box: self.in_box, path: self.path + more }
    }
}

/// `POST /run` of `:` with the default configuration. Most calls are before the request and after
/// the answer, where about a hundred check whether a network namespace was used. How many calls for
/// the next sandbox fall between the two varies: 208 with none when this was set. One call writes
/// the log line of the run, three read how many processes the OOM killer ended. Three calls in the
/// sandbox and two of the server are for the listener of file locks.
pub const RUN: Ceilings = Ceilings { ours: 355, in_box: 319, path: 451 };
/// The same without a standby pool.
pub const RUN_WITHOUT_STANDBY: Ceilings = Ceilings { ours: 312, in_box: 319, path: 553 };
/// `cofferdam exec -- /bin/true` from start to end, without another server on the host. Three calls
/// read how many processes the OOM killer ended, three are about its own limit of file sizes, two
/// ask whether lock listeners are supported, four keep its memory out of core dumps.
pub const EXEC: Ceilings = Ceilings { ours: 541, in_box: 315, path: 856 };
/// The calls that check whether one other server is alive.
pub const PER_OTHER_SERVER: usize = 4;

/// What another host may need in addition: for its cgroups, for the directories that its root shows
/// or masks, for capabilities of later kernels.
pub const HOSTS_DIFFER_BY: usize = 8;
/// The calls by which the server's threads wait for each other in a run: 16 to 21 when this was
/// set. The number depends on which thread is faster.
pub const WAITING_MAX: usize = 32;
