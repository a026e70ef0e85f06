//! What is looked up on the host once, before any box.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::cgroup;
use super::covers::Covers;
use super::profile::Profile;
use super::rootfs::{self, Kind, RootLayout, c_string};
use super::seccomp::filter::Filter;
use super::state::StateDirectory;
use super::step::Rlimit;
use crate::base::deadline::Deadline;
use crate::spec::{Limits, SetupFailure, Swept};

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

/// Ends and removes whatever servers that are dead by now left behind.
pub fn sweep_abandoned(state: &StateDirectory) -> std::io::Result<Swept> {
    let mut all = Swept::default();
    for dead in state.abandoned()? {
        // A box has a directory in every hierarchy: the one with most of them has them all.
        let (mut boxes, mut processes) = (0, 0);
        for directory in dead.recorded_cgroups() {
            match cgroup::sweep(&directory, Deadline::after(SWEEP_WAIT)) {
                Ok(swept) => {
                    log::info!("cleared what instance {} left: {swept:?}", dead.id());
                    boxes = boxes.max(swept.boxes);
                    processes += swept.processes_killed;
                }
                Err(error) if error.errno == nix::errno::Errno::ENOENT => {}
                Err(error) => log::error!("sweep {}: {error}", directory.display()),
            }
        }
        dead.unregister()?;
        all.servers += 1;
        all.boxes += boxes;
        all.processes += processes;
    }
    Ok(all)
}

/// The layout of boxes with that root, and what has to be covered in it.
pub fn layout_of(
    root: &RootSource,
    profile: &Profile,
    private: &[PathBuf],
) -> std::io::Result<(RootLayout, Covers)> {
    // By its real name too, which is what trees that are shown are compared with.
    let real = private.iter().filter_map(|path| path.canonicalize().ok());
    let private: Vec<PathBuf> = private.iter().cloned().chain(real).collect();
    let base = root.path();
    let mut entries: Vec<(String, Kind)> = Vec::new();
    for entry in std::fs::read_dir(base)? {
        let entry = entry?;
        // A name that is no text names nothing a toolchain needs.
        if let (Ok(name), Some(kind)) =
            (entry.file_name().into_string(), rootfs::kind_at(&entry.path()))
        {
            entries.push((name, kind));
        }
    }
    entries.sort_by(|(a, _), (b, _)| a.cmp(b));
    let kind_of = |path: &Path| rootfs::kind_at(&base.join(rootfs::strip_root(path)));
    let mut layout = rootfs::layout(base, &entries, &profile.root, &private, &kind_of);
    // A root given on purpose hides nothing.
    let hide = if *root == RootSource::Host { &profile.root.hide[..] } else { &[] };
    let hidden: Vec<PathBuf> = hide.iter().map(PathBuf::from).collect();
    let covers = Covers::new(&layout, &hidden, &private)?;
    if covers.covers_mount_at(&base.join("etc/hosts"))? {
        layout.keep_own_hosts();
    }
    Ok((layout, covers))
}

/// The filter of every box's init, part of this program.
pub fn init_filter() -> Result<Filter, SetupFailure> {
    let profile = Profile::builtin("init")
        .map_err(|error| SetupFailure::from_words("seccomp init", error.to_string()))?;
    Ok(profile.filter)
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
