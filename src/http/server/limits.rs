//! Limits of the HTTP server, and the descriptors that its connections need.

use std::io;
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Descriptors for everything but clients' connections: listeners, scrapers, logs, event loops.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Descriptors that one run may need at once: pipes, namespaces, cgroup files, the client's socket.
const DESCRIPTORS_PER_RUN: u64 = 32;
/// Descriptors of one prepared sandbox.
const DESCRIPTORS_PER_STANDBY: u64 = 24;

/// Descriptors for downloads from jobs and for their store.
const DESCRIPTORS_OF_JOBS: u64 = 128;
/// Descriptors for artifacts of the engine that are received and sent, and for their store.
const DESCRIPTORS_OF_ARTIFACTS: u64 = 96;
/// Descriptors of one workspace.
const DESCRIPTORS_PER_WORKSPACE: u64 = 2;
/// Descriptors for each client that follows a job: both of its output files.
const DESCRIPTORS_PER_FOLLOWER: u64 = 2;

/// The limits of the HTTP server.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Connections served at once; more wait in the kernel's queue.
    pub connections_max: usize,
    /// Time limit from the first byte of a head to its last.
    pub head_within: Duration,
    /// Time limit from the end of a head to the end of the body.
    pub body_within: Duration,
    /// Memory for all bodies that are being read, in bytes. If it is used up, large bodies wait for
    /// their turn, and slow ones are evicted.
    pub bodies_bytes_max: u64,
    /// Time limit for writing a response once the socket has no room for it.
    pub answer_within: Duration,
    /// Memory for all unread responses, in bytes. If it is used up, the response that has been
    /// unread for the longest time is evicted.
    pub unread_bytes_max: u64,
    /// How long a connection may be idle between two requests.
    pub idle_max: Duration,
    /// How long the remaining bytes of a refused client are discarded, so that it reads the
    /// response.
    pub linger_max: Duration,
    /// The interval between pings on an event stream.
    pub ping_every: Duration,
    /// Event streams of jobs at once; more are refused. They use at most half of the connections.
    pub event_streams_max: usize,
    /// Artifact downloads at once; more are refused. They use at most half of the connections.
    pub downloads_max: usize,
    /// Versions of artifacts that are received at once, and that are sent; more wait or are refused.
    /// They use at most half of the connections.
    pub artifact_transfers_max: usize,
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
            artifact_transfers_max: 32,
        }
    }
}

/// How many sandboxes there may be at once, by purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SandboxCounts {
    /// For runs.
    pub runs: usize,
    /// For jobs; 0 if jobs are disabled.
    pub jobs: usize,
    /// For programs of workspaces; 0 without the engine.
    pub engine: usize,
    /// Workspaces, which need descriptors while nothing runs in them too.
    pub workspaces: usize,
    /// Prepared.
    pub standby: usize,
    /// Clients that may follow jobs.
    pub followers: usize,
}

/// Returns how many connections this process can hold: `wanted`, or fewer if its descriptors do not
/// suffice for them and `sandboxes`, but at least one.
pub fn connections_affordable(wanted: usize, sandboxes: SandboxCounts) -> usize {
    let descriptors_max = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    affordable(wanted, sandboxes, descriptors_max)
}

fn affordable(wanted: usize, sandboxes: SandboxCounts, descriptors_max: u64) -> usize {
    let left = descriptors_max.saturating_sub(other_descriptors(sandboxes));
    wanted.min(usize::try_from(left).unwrap_or(usize::MAX)).max(1)
}

/// Returns how many descriptors are not for connections.
fn other_descriptors(sandboxes: SandboxCounts) -> u64 {
    let SandboxCounts { runs, jobs, engine, .. } = sandboxes;
    let live = [runs, jobs, engine].iter().fold(0, |sum: u64, one| sum.saturating_add(*one as u64));
    let for_runs = DESCRIPTORS_PER_RUN.saturating_mul(live);
    let for_followers = DESCRIPTORS_PER_FOLLOWER.saturating_mul(sandboxes.followers as u64);
    let of_jobs = DESCRIPTORS_OF_JOBS.saturating_add(for_followers);
    let for_jobs = if sandboxes.jobs > 0 { of_jobs } else { 0 };
    let for_standby = DESCRIPTORS_PER_STANDBY.saturating_mul(sandboxes.standby as u64);
    let for_artifacts = if engine > 0 { DESCRIPTORS_OF_ARTIFACTS } else { 0 };
    DESCRIPTORS_RESERVED
        .saturating_add(for_runs)
        .saturating_add(for_standby)
        .saturating_add(for_jobs)
        .saturating_add(for_artifacts)
}

/// The process needs more descriptors than its hard limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "open files: {needed} are needed for {wanted} connections besides the sandboxes and workspaces, and the \
     hard limit is {hard}: {served} connections are served at once"
)]
pub struct DescriptorShortage {
    needed: u64,
    hard: u64,
    wanted: usize,
    served: usize,
    sandboxes: SandboxCounts,
}

impl DescriptorShortage {
    /// Returns why the service cannot start, if no descriptor is left for even one connection.
    pub fn fatal(&self) -> Option<String> {
        let Self { hard, sandboxes, .. } = *self;
        let SandboxCounts { runs, jobs, engine, standby, followers, .. } = sandboxes;
        let least = other_descriptors(sandboxes).saturating_add(1);
        (hard < least).then(|| {
            format!(
                "open files: the hard limit (ulimit -Hn, LimitNOFILE=) is {hard}, and at least \
                 {least} are needed for {runs} runs, {jobs} jobs, {engine} programs of workspaces, \
                 {standby} prepared sandboxes, {followers} clients that follow jobs and one \
                 connection; raise it, or lower RUN_CONCURRENCY, JOBS_WORKERS, ENGINE_RUNS_MAX, \
                 STANDBY_MAX and JOBS_FOLLOWERS_MAX"
            )
        })
    }
}

/// Raises the soft limit of descriptors to what `wanted` connections and `sandboxes` need. The default
/// of shells and service managers is meant for programs that use `select`. Sandboxes have their own
/// limit.
pub fn raise_descriptors(
    wanted: usize,
    sandboxes: SandboxCounts,
) -> io::Result<Option<DescriptorShortage>> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    // Workspaces take no connection its descriptor: there are seldom as many as there may be.
    let of_workspaces = DESCRIPTORS_PER_WORKSPACE.saturating_mul(sandboxes.workspaces as u64);
    let needed =
        other_descriptors(sandboxes).saturating_add(of_workspaces).saturating_add(wanted as u64);
    if needed > soft {
        setrlimit(Resource::RLIMIT_NOFILE, needed.min(hard), hard)?;
    }
    let served = affordable(wanted, sandboxes, hard);
    Ok((needed > hard).then_some(DescriptorShortage { needed, hard, wanted, served, sandboxes }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_descriptors_that_runs_need() {
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
            let (engine, workspaces, followers) = (0, 1000, 64);
            let sandboxes = SandboxCounts { runs, jobs, engine, workspaces, standby, followers };
            assert_eq!(affordable(wanted, sandboxes, descriptors_max), expected);
        }
    }
}
