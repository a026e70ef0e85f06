//! The resources that the host holds for a service, before and after a row.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_test_server::host::{
    Footprint, HOST_UIDS, mounts, parent, ready_sandboxes, threads_and_descriptors,
};
use cofferdam_test_server::prestart::warm_sandboxes;
use cofferdam_test_server::service::Service;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// How long the resources of a row may take to be freed: the kernel frees namespaces with a delay.
const GONE_WITHIN: Duration = Duration::from_secs(5);
/// A count that has not changed for this long is final.
const SETTLED_FOR: Duration = Duration::from_millis(100);
/// The uid of a tenant that nothing maps.
const UNMAPPED_UID: u32 = 10_001;

/// The counts that must not grow; the numbers of prepared and of warm sandboxes must be the same as
/// before.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Holdings {
    ready: usize,
    warm: usize,
    tenants: BTreeSet<i32>,
    cgroups: BTreeSet<PathBuf>,
    cgroups_with_ready: usize,
    mounts_of_service: usize,
    mounts_of_host: usize,
    descriptors: usize,
    net_namespaces: usize,
    tenants_files: usize,
}

/// The host's state before an attack.
#[derive(Debug, Clone)]
pub struct HostState {
    service: i32,
    before: Holdings,
}

impl HostState {
    /// The state once it no longer changes.
    pub fn settled(service: &Service) -> Self {
        let deadline = Instant::now() + GONE_WITHIN;
        let (mut last, mut since) = (Holdings::of(service), Instant::now());
        while since.elapsed() < SETTLED_FOR && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
            let now = Holdings::of(service);
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Self { service: service.pid(), before: last }
    }

    /// Panics with the difference if the host does not return to this state.
    #[track_caller]
    pub fn assert_holds_for(&self, service: &Service) {
        let deadline = Instant::now() + GONE_WITHIN;
        let mut now = Holdings::of(service);
        while self.before.is_exceeded_by(&now) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
            now = Holdings::of(service);
        }
        assert!(
            !self.before.is_exceeded_by(&now),
            "left on the host: {now:?}\nbefore: {:?}\ntenants: {:?}",
            self.before,
            now.tenants.iter().map(|pid| command_line(*pid)).collect::<Vec<_>>()
        );
    }

    /// Kills tenants that did not exist before.
    pub fn kill_what_is_new(&self) {
        for pid in tenants(self.service).difference(&self.before.tenants) {
            // The process may already have ended.
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
        }
    }
}

impl Holdings {
    fn of(service: &Service) -> Self {
        let (ready, warm) = (ready_sandboxes(service.pid()), warm_sandboxes(service.pid()));
        let counts = (ready.len(), warm.len());
        let inits: Vec<i32> = ready.into_iter().chain(warm).map(|init| init.pid).collect();
        let in_ready = |pid: &i32| ancestry(*pid).any(|pid| inits.contains(&pid));
        let cgroups = Footprint::of(service.pid()).cgroups();
        let ready_names: BTreeSet<OsString> =
            inits.iter().flat_map(|init| cgroup_names(*init)).collect();
        let in_ready_group =
            |path: &PathBuf| path.file_name().is_some_and(|name| ready_names.contains(name));
        Self {
            ready: counts.0,
            warm: counts.1,
            tenants: tenants(service.pid()).into_iter().filter(|pid| !in_ready(pid)).collect(),
            cgroups_with_ready: cgroups.len(),
            cgroups: cgroups.into_iter().filter(|path| !in_ready_group(path)).collect(),
            mounts_of_service: mounts(service.pid()),
            mounts_of_host: mounts(1),
            descriptors: threads_and_descriptors(service.pid()).1,
            net_namespaces: net_namespaces(service.pid()),
            tenants_files: tenants_files(),
        }
    }

    /// Whether `now` holds more than this. Files of other servers' tenants count
    /// too and may disappear meanwhile.
    fn is_exceeded_by(&self, now: &Self) -> bool {
        now.ready != self.ready
            || now.warm != self.warm
            || now.cgroups_with_ready > self.cgroups_with_ready
            || !now.tenants.is_subset(&self.tenants)
            || !now.cgroups.is_subset(&self.cgroups)
            || now.mounts_of_service > self.mounts_of_service
            || now.mounts_of_host > self.mounts_of_host
            || now.descriptors > self.descriptors
            || now.net_namespaces > self.net_namespaces
            || now.tenants_files > self.tenants_files
    }
}

fn is_tenant(uid: u32) -> bool {
    HOST_UIDS.contains(&uid) || uid == UNMAPPED_UID
}

/// The processes on the host with a tenant's uid that belong to `service`:
/// its descendants, and processes reparented out of any server.
fn tenants(service: i32) -> BTreeSet<i32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| uid(*pid).is_some_and(is_tenant) && is_of(*pid, service)).collect()
}

/// Whether the nearest ancestor of `pid` that is no tenant is `service` or its
/// descendant, or an ancestor of this test: only an escaped process has such a
/// parent. The init of another server's sandbox is neither, even while it ends.
fn is_of(pid: i32, service: i32) -> bool {
    let Some(holder) = ancestry(pid).skip(1).find(|pid| !uid(*pid).is_some_and(is_tenant)) else {
        return false;
    };
    let us = std::process::id().try_into().unwrap();
    ancestry(holder).any(|pid| pid == service) || ancestry(us).any(|pid| pid == holder)
}

/// A process, its parent, and so on.
fn ancestry(pid: i32) -> impl Iterator<Item = i32> {
    std::iter::successors(Some(pid), |pid| parent(*pid).filter(|parent| *parent > 0))
}

/// The uid of a process. The owner of its /proc directory is root if it is not dumpable.
fn uid(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_whitespace().next()?.parse().ok()
}

/// The last components of a process's cgroup paths, which name its sandbox.
fn cgroup_names(pid: i32) -> Vec<OsString> {
    let cgroups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let paths = cgroups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    paths.filter_map(|path| Path::new(path).file_name().map(OsString::from)).collect()
}

fn command_line(pid: i32) -> String {
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    format!("{pid}: {}", String::from_utf8_lossy(&words).replace('\0', " "))
}

/// Network namespaces that the server holds open by a descriptor.
fn net_namespaces(pid: i32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let targets = links.filter_map(|link| fs::read_link(link.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("net:[")).count()
}

/// Files of tenants in the host directories where a run could leave any.
pub fn tenants_files() -> usize {
    let count = |directory: &str| {
        let entries = fs::read_dir(Path::new(directory)).into_iter().flatten().flatten();
        let owners = entries.filter_map(|entry| Some(entry.metadata().ok()?.uid()));
        owners.filter(|uid| is_tenant(*uid)).count()
    };
    ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run/lock"].map(count).iter().sum()
}
