//! How much and how long a client may ask of the front.

use std::io;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors kept for what is no connection of a client: listeners, scrapers, logs, event loops.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Descriptors one run may need at once: pipes, namespaces, cgroup files, its client's socket.
const DESCRIPTORS_PER_RUN: u64 = 32;
/// And of one whose box stands and waits for it.
const DESCRIPTORS_PER_STANDBY: u64 = 24;

/// Descriptors of what jobs' clients download, and of their store.
const DESCRIPTORS_OF_JOBS: u64 = 128;
/// And of each client that follows one: both of its output files.
const DESCRIPTORS_PER_FOLLOWER: u64 = 2;

/// The front's limits.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Connections served at once; more wait in the kernel's queue.
    pub connections_max: usize,
    /// From the first byte of a head to its last.
    pub head_within: Duration,
    /// From the end of a head to the end of its body.
    pub body_within: Duration,
    /// What bodies that are being read may hold together, bytes; beyond it large ones wait
    /// for their turn, and those go that do not grow.
    pub bodies_bytes_max: u64,
    /// From the first byte of an answer that finds no room to the last one written.
    pub answer_within: Duration,
    /// What answers that are not read may hold together, bytes; beyond it the longest unread goes.
    pub unread_bytes_max: u64,
    /// How long a connection may lie between two requests.
    pub idle_max: Duration,
    /// How long what a refused client still sends is thrown away, so that it reads the answer.
    pub linger_max: Duration,
    /// Between two signs of life on an event stream.
    pub ping_every: Duration,
    /// Streams of jobs' events at once; one more is refused. They take at most half of the connections.
    pub event_streams_max: usize,
    /// Artifacts sent at once; one more is refused. They take at most half of the connections.
    pub downloads_max: usize,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            head_within: Duration::from_secs(10),
            body_within: Duration::from_secs(30),
            bodies_bytes_max: 64 << 20,
            answer_within: Duration::from_secs(30),
            unread_bytes_max: 64 << 20,
            idle_max: Duration::from_secs(60),
            linger_max: Duration::from_secs(5),
            ping_every: Duration::from_secs(10),
            event_streams_max: 64,
            downloads_max: 64,
        }
    }
}

/// How many boxes there may be at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxCounts {
    /// With a run in them.
    pub runs: usize,
    /// With a job in them; 0 where there are no jobs.
    pub jobs: usize,
    /// Made ahead.
    pub standby: usize,
    /// Clients that may follow jobs.
    pub followers: usize,
}

/// How many connections this process can hold: `wanted`, or fewer where its
/// descriptors would not suffice for them beside `boxes`; at least one.
pub fn connections_affordable(wanted: usize, boxes: SandboxCounts) -> usize {
    let descriptors_max = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    affordable(wanted, boxes, descriptors_max)
}

fn affordable(wanted: usize, boxes: SandboxCounts, descriptors_max: u64) -> usize {
    let left = descriptors_max.saturating_sub(beside_connections(boxes));
    wanted.min(usize::try_from(left).unwrap_or(usize::MAX)).max(1)
}

/// The descriptors that are for no connection.
fn beside_connections(boxes: SandboxCounts) -> u64 {
    let live = (boxes.runs as u64).saturating_add(boxes.jobs as u64);
    let for_runs = DESCRIPTORS_PER_RUN.saturating_mul(live);
    let for_followers = DESCRIPTORS_PER_FOLLOWER.saturating_mul(boxes.followers as u64);
    let of_jobs = DESCRIPTORS_OF_JOBS.saturating_add(for_followers);
    let for_jobs = if boxes.jobs > 0 { of_jobs } else { 0 };
    let for_standby = DESCRIPTORS_PER_STANDBY.saturating_mul(boxes.standby as u64);
    DESCRIPTORS_RESERVED
        .saturating_add(for_runs)
        .saturating_add(for_standby)
        .saturating_add(for_jobs)
}

/// More descriptors are needed than this process may ever have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "open files: {needed} are needed for {wanted} connections beside the boxes, and the hard limit \
     is {hard}: {served} connections are served at once"
)]
pub struct DescriptorShortage {
    needed: u64,
    hard: u64,
    wanted: usize,
    served: usize,
    boxes: SandboxCounts,
}

impl DescriptorShortage {
    /// Why the service cannot start, where not even one connection is left beside the sandboxes.
    pub fn refusal(&self) -> Option<String> {
        let Self { hard, boxes: SandboxCounts { runs, jobs, standby, followers }, .. } = *self;
        let least = beside_connections(self.boxes).saturating_add(1);
        (hard < least).then(|| {
            format!(
                "open files: the hard limit (ulimit -Hn, LimitNOFILE=) is {hard}, and at least \
                 {least} are needed for {runs} runs, {jobs} jobs, {standby} sandboxes made ahead, \
                 {followers} clients that follow jobs and one connection; raise it, or lower \
                 RUN_CONCURRENCY, JOBS_WORKERS, STANDBY_MAX and JOBS_FOLLOWERS_MAX"
            )
        })
    }
}

/// Raises this process's soft limit of descriptors as far as `wanted`
/// connections and `boxes` need it: what a shell or a service manager sets is
/// meant for programs that may use `select`. SandboxCounts have a limit of their own.
pub fn raise_descriptors(
    wanted: usize,
    boxes: SandboxCounts,
) -> io::Result<Option<DescriptorShortage>> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let needed = beside_connections(boxes).saturating_add(wanted as u64);
    if needed > soft {
        setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard)?;
    }
    let served = affordable(wanted, boxes, hard);
    Ok((needed > hard).then_some(DescriptorShortage { needed, hard, wanted, served, boxes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_take_the_descriptors_that_runs_need() {
        for (wanted, runs, jobs, standby, descriptors_max, expected) in [
            (1024, 10, 0, 10, 1_048_576, 1024),
            (1024, 10, 0, 0, 1024, 640),
            (1024, 10, 2, 0, 1024, 320),
            (1024, 10, 0, 10, 1024, 400),
            (1024, 100, 0, 0, 1024, 1),
            (1024, 1, 0, 100, 1024, 1),
            (1024, usize::MAX, usize::MAX, usize::MAX, u64::MAX, 1),
            (7, 1, 0, 1, 1024, 7),
        ] {
            let boxes = SandboxCounts { runs, jobs, standby, followers: 64 };
            assert_eq!(affordable(wanted, boxes, descriptors_max), expected);
        }
    }
}
