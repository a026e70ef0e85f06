//! What is looked up on the host once, before any box.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::state::{Instance, StateDirectory};
use crate::builtin::builtin_profile;
use crate::cgroup;
use crate::files::masked_paths::MaskedPaths;
use crate::files::root_directory::RootDirectory;
use crate::locks::LockFilter;
use crate::plan::rootfs;
use crate::plan::rootfs::{RootLayout, c_string};
use crate::plan::steps::process::Rlimit;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_core::{Limits, SetupFailure, SweepCounts};
use cofferdam_seccomp::filter::Filter;
use cofferdam_seccomp::profile::Profile;

/// How long the boxes of a dead server may take to be cleared away at start.
pub const SWEEP_WAIT: Duration = Duration::from_secs(10);
/// Directories every root has one of, for the box's root to be put on until it is the root.
const MOUNTPOINTS: [&str; 4] = ["/tmp", "/mnt", "/run", "/var"];

/// Whose root file system boxes see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RootSource {
    /// The host's, read-only and masked.
    Host,
    /// This directory's; nothing of the host is visible.
    Directory(PathBuf),
}

impl RootSource {
    /// Where it is on the host.
    pub fn path(&self) -> &Path {
        match self {
            Self::Host => Path::new("/"),
            Self::Directory(directory) => directory,
        }
    }
}

/// What of a process would otherwise be the server's: no priority above the
/// ordinary, and of the kernel's own memory what its defaults allow.
const FIXED_LIMITS: [(Rlimit, Resource, u64); 6] = [
    (Rlimit::Nice, Resource::RLIMIT_NICE, 0),
    (Rlimit::RealtimePriority, Resource::RLIMIT_RTPRIO, 0),
    (Rlimit::RealtimeTime, Resource::RLIMIT_RTTIME, 1_000_000),
    (Rlimit::LockedMemory, Resource::RLIMIT_MEMLOCK, 8 << 20),
    (Rlimit::MessageQueues, Resource::RLIMIT_MSGQUEUE, 819_200),
    (Rlimit::PendingSignals, Resource::RLIMIT_SIGPENDING, 4096),
];

/// The hard process limits this process inherited: nothing can go above them.
#[derive(Debug, Clone, Copy)]
pub struct HardLimits {
    open_files: u64,
    processes: u64,
    cpu_seconds: u64,
    file_bytes: u64,
    fixed: [(Rlimit, u64); FIXED_LIMITS.len()],
}

impl HardLimits {
    /// Those of this process.
    pub fn read() -> std::io::Result<Self> {
        let mut fixed = FIXED_LIMITS.map(|(limit, _, value)| (limit, value));
        for ((_, value), (_, resource, _)) in fixed.iter_mut().zip(FIXED_LIMITS) {
            *value = getrlimit(resource)?.1.min(*value);
        }
        Ok(Self {
            fixed,
            open_files: getrlimit(Resource::RLIMIT_NOFILE)?.1,
            processes: getrlimit(Resource::RLIMIT_NPROC)?.1,
            file_bytes: getrlimit(Resource::RLIMIT_FSIZE)?.1,
            cpu_seconds: match getrlimit(Resource::RLIMIT_CPU)?.1 {
                RLIM_INFINITY => RLIM_INFINITY,
                // The hard limit is one above the soft, for SIGXCPU to come before SIGKILL.
                seconds => seconds.saturating_sub(1),
            },
        })
    }

    /// The limits that are the same for every run, as far as they can be set.
    pub fn fixed(&self) -> &[(Rlimit, u64)] {
        &self.fixed
    }

    /// Brings limits down to what can be set, and says so.
    pub fn clamp(self, limits: &mut Limits, notes: &mut Vec<String>) {
        for (name, wanted, hard) in [
            ("open files", &mut limits.open_files_max, self.open_files),
            ("processes", &mut limits.processes_max, self.processes),
            ("CPU seconds", &mut limits.cpu_seconds_max, self.cpu_seconds),
            ("bytes of a file", &mut limits.file_bytes_max, self.file_bytes),
        ] {
            if *wanted > hard {
                notes.push(format!("{name}: {wanted} lowered to the inherited hard limit {hard}"));
                *wanted = hard;
            }
        }
    }
}

/// Whether a sysctl hints that user namespaces may be refused here. A hint only:
/// it decides whether to try, and the trial decides the rest.
pub fn user_namespaces_are_doubtful() -> bool {
    let reads = |path: &str, text: &str| {
        std::fs::read_to_string(path).is_ok_and(|value| value.trim() == text)
    };
    reads("/proc/sys/user/max_user_namespaces", "0")
        || reads("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1")
}

/// Ends and removes whatever servers that are dead by now left behind. One whose groups do not go
/// stays registered: the next start tries again.
pub fn sweep_abandoned(state: &StateDirectory) -> std::io::Result<SweepCounts> {
    let mut all = SweepCounts::default();
    for dead in state.abandoned()? {
        let Some(SweepCounts { boxes, processes, .. }) = sweep_instance(&dead) else { continue };
        dead.unregister()?;
        all.servers += 1;
        all.boxes += boxes;
        all.processes += processes;
    }
    Ok(all)
}

/// Clears what one dead server left, and says so in one line; nothing where some of it stays.
fn sweep_instance(dead: &Instance) -> Option<SweepCounts> {
    // A box has a directory in every hierarchy: the one with most of them has them all.
    let (mut boxes, mut processes, mut directories) = (0, 0, 0);
    let mut is_clear = true;
    for directory in dead.recorded_cgroups() {
        match cgroup::sweep(&directory, Deadline::after(SWEEP_WAIT)) {
            Ok(swept) => {
                boxes = boxes.max(swept.boxes);
                processes += swept.processes_killed;
                directories += swept.directories_removed;
            }
            Err(error) if error.errno == nix::errno::Errno::ENOENT => {}
            Err(error) => {
                is_clear = false;
                log::error!("sweep {}: {error}; the next start tries again", directory.display());
            }
        }
    }
    if directories > 0 {
        log::info!(
            "cleared what instance {} left: {boxes} sandboxes, {processes} processes killed, \
             {directories} cgroup directories removed",
            dead.id()
        );
    }
    is_clear.then_some(SweepCounts { servers: 1, boxes, processes })
}

/// The layout of boxes with that root, and what has to be covered in it.
pub fn layout_of(
    root: &RootSource,
    directory: &RootDirectory,
    profile: &Profile,
    private: &[PathBuf],
) -> std::io::Result<(RootLayout, MaskedPaths)> {
    // By its real name too, which is what trees that are shown are compared with.
    let real = private.iter().filter_map(|path| path.canonicalize().ok());
    let private: Vec<PathBuf> = private.iter().cloned().chain(real).collect();
    let (base, entries) = (directory.path(), directory.entries()?);
    let kind_of = |path: &Path| rootfs::kind_at(&base.join(rootfs::strip_root(path)));
    let mut layout = rootfs::layout(base, &entries, &profile.root, &private, &kind_of);
    // A root given on purpose hides nothing.
    let hide = if *root == RootSource::Host { &profile.root.hide[..] } else { &[] };
    let hidden: Vec<PathBuf> = hide.iter().map(PathBuf::from).collect();
    let masked = MaskedPaths::new(&layout, &hidden, &private)?;
    if masked.is_masked_mount(&base.join("etc/hosts"))? {
        layout.keep_own_hosts();
    }
    Ok((layout, masked))
}

/// The filter of every box's init, part of this program.
pub fn init_filter() -> Result<Filter, SetupFailure> {
    let profile = builtin_profile("init")
        .map_err(|error| SetupFailure::from_words("seccomp init", error.to_string()))?;
    Ok(profile.filter)
}

/// The filter for file locks that this host lets sandboxes have.
pub fn lock_filter() -> Result<LockFilter, SetupFailure> {
    LockFilter::for_this_host()
        .map_err(|error| SetupFailure::from_words("seccomp locks", error.to_string()))
}

/// Whether this kernel has POSIX message queues.
pub fn has_message_queues() -> bool {
    Path::new("/proc/sys/fs/mqueue").exists()
}

/// A directory to put a box's root on.
pub fn mountpoint() -> std::io::Result<CString> {
    let found = MOUNTPOINTS.into_iter().find(|path| Path::new(path).is_dir());
    found.map(|path| c_string(path.as_ref())).ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// The highest capability this kernel knows.
pub fn last_capability() -> std::io::Result<u32> {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap")?;
    text.trim().parse().map_err(|_| std::io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_instance_whose_sweep_failed_stays_registered_for_the_next_one() {
        let place = tempfile::tempdir().unwrap();
        let state = StateDirectory::open_at(&place.path().join("state")).unwrap();
        let dead = state.register().unwrap();
        // By its name a group of ours, which cannot be swept: it is on no cgroup file system.
        let group = place.path().join(format!("cofferdam-{}", dead.id()));
        fs::create_dir(&group).unwrap();
        dead.record_cgroups(std::slice::from_ref(&group)).unwrap();
        drop(dead);
        for _ in 0..2 {
            assert_eq!(sweep_abandoned(&state).unwrap(), SweepCounts::default());
            assert_eq!(state.abandoned().unwrap().len(), 1);
        }
        fs::remove_dir(&group).unwrap();
        assert_eq!(sweep_abandoned(&state).unwrap().servers, 1);
        assert_eq!(state.abandoned().unwrap().len(), 0);
    }
}
