//! The Firecracker process: starts, configures and ends it.

mod api;
mod console;
pub(crate) mod jailer;
pub(crate) mod requests;

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use self::api::{ApiClient, ApiError};
use self::console::Console;
use self::jailer::{API_SOCKET, Jailer, unjailed};
use self::requests::{MachineParts, requests};
use crate::machine::{Hypervisor, Machine, MachinePlan, VSOCK, call_name, listen};
use cofferdam_core::SetupFailure;
use cofferdam_core::values::deadline::Deadline;
use cofferdam_tree::remove_tree;

/// The names of the hard links in a jail.
const LINKS: [&str; 4] = ["kernel", "initrd", "root-image", "scratch"];
const CGROUPS: &str = "/sys/fs/cgroup";
/// Time limit of one API call; they take milliseconds.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How long to wait for a dying process after its socket is gone.
const END_WAIT: Duration = Duration::from_millis(300);
/// How long to wait after SIGKILL.
const KILL_WAIT: Duration = Duration::from_secs(10);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Starts machines with Firecracker.
#[derive(Debug, Clone)]
pub struct Vmm {
    /// The `firecracker` binary.
    pub firecracker: PathBuf,
    /// The jailer that confines it on the host. Without one it runs with this process's privileges.
    pub jailer: Option<Jailer>,
    /// The guest's kernel, uncompressed (`vmlinux`).
    pub kernel: PathBuf,
    /// An initramfs, if the root image has no guest init.
    pub initrd: Option<PathBuf>,
    /// The image of the guest's root file system, which is read-only in the guest.
    pub root_image: PathBuf,
    /// Further kernel arguments.
    pub boot_arguments: String,
}

impl Hypervisor for Vmm {
    fn boot(&self, plan: &MachinePlan<'_>) -> Result<Box<dyn Machine>, SetupFailure> {
        self.look()?;
        let place = match &self.jailer {
            Some(jailer) => MachineDir::jailed(self, jailer, plan)?,
            None => MachineDir { directory: plan.directory.to_owned(), jail: None },
        };
        let mut process = self.start(place, plan)?;
        process.configure(&self.requests(plan), plan.boot)?;
        Ok(Box::new(process))
    }
}

impl Vmm {
    /// Checks that all files exist.
    fn look(&self) -> Result<(), SetupFailure> {
        let jailer = self.jailer.as_ref().map(|jailer| &jailer.binary);
        let files = [Some(&self.firecracker), jailer, Some(&self.kernel), self.initrd.as_ref()];
        for path in files.into_iter().flatten().chain([&self.root_image]) {
            File::open(path).map_err(|error| {
                SetupFailure::from_io(format!("open {}", path.display()), &error)
            })?;
        }
        Ok(())
    }

    fn start(&self, place: MachineDir, plan: &MachinePlan<'_>) -> Result<VmmProcess, SetupFailure> {
        let failed = |error: io::Error| SetupFailure::from_io("listen for the guest", &error);
        let calls = listen(&place.directory).map_err(failed)?;
        if let Some(jailer) = &self.jailer {
            let socket = place.directory.join(call_name());
            chown(socket, Some(jailer.uid), Some(jailer.gid)).map_err(failed)?;
        }
        let mut command = match &self.jailer {
            Some(jailer) => {
                let mut command = Command::new(&jailer.binary);
                command.args(jailer.arguments(&self.firecracker, plan.id));
                command
            }
            None => {
                let mut command = Command::new(&self.firecracker);
                command.args(unjailed(plan.id));
                command
            }
        };
        command.current_dir(plan.directory).env_clear();
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| SetupFailure::from_io("start firecracker", &error))?;
        let console = Console::of(child.stdout.take(), child.stderr.take());
        Ok(VmmProcess { child, place, calls, console, over: None })
    }

    /// The API requests, with paths as Firecracker sees them.
    fn requests(&self, plan: &MachinePlan<'_>) -> Vec<(&'static str, serde_json::Value)> {
        let links = LINKS.map(|name| Path::new("/").join(name));
        let jail_socket = Path::new("/").join(VSOCK);
        let [kernel, initrd, root_image, scratch] = &links;
        let jailed = self.jailer.is_some();
        let choose = |own: &'_ Path, link: &'_ Path| {
            if jailed { link.to_owned() } else { own.to_owned() }
        };
        let initrd = self.initrd.as_deref().map(|own| choose(own, initrd));
        requests(&MachineParts {
            kernel: &choose(&self.kernel, kernel),
            initrd: initrd.as_deref(),
            root_image: &choose(&self.root_image, root_image),
            scratch: &choose(&plan.scratch, scratch),
            vsock: &choose(Path::new(VSOCK), &jail_socket),
            boot_arguments: &self.boot_arguments,
            vcpus: plan.vcpus,
            memory_mib: plan.memory_mib,
        })
    }
}

/// The directory of a machine's sockets, and its jail if it has one.
#[derive(Debug)]
struct MachineDir {
    directory: PathBuf,
    jail: Option<Jail>,
}

/// A jail. It is removed on drop, when no process is left in it.
#[derive(Debug)]
struct Jail {
    jails: PathBuf,
    id: String,
    groups: Vec<PathBuf>,
}

impl MachineDir {
    /// Creates a jail and links all files into it.
    fn jailed(vmm: &Vmm, jailer: &Jailer, plan: &MachinePlan<'_>) -> Result<Self, SetupFailure> {
        let failed = |step: String| move |error: io::Error| SetupFailure::from_io(step, &error);
        let directory = jailer.root(&vmm.firecracker, plan.id);
        let jail = Jail {
            jails: jailer.jails(&vmm.firecracker),
            id: plan.id.to_owned(),
            groups: jailer.groups(Path::new(CGROUPS), &vmm.firecracker, plan.id),
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .map_err(failed("make jail".to_owned()))?;
        let scratch = plan.scratch.clone();
        let sources =
            [Some(&vmm.kernel), vmm.initrd.as_ref(), Some(&vmm.root_image), Some(&scratch)];
        for (source, link) in sources.into_iter().zip(LINKS) {
            if let Some(source) = source {
                fs::hard_link(source, directory.join(link))
                    .map_err(failed(format!("link {} into the jail", source.display())))?;
            }
        }
        chown(&plan.scratch, Some(jailer.uid), Some(jailer.gid))
            .map_err(failed("chown scratch drive".to_owned()))?;
        Ok(Self { directory, jail: Some(jail) })
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        let removed =
            File::open(&self.jails).map_err(|error| error.to_string()).and_then(|jails| {
                remove_tree(jails.as_fd(), OsStr::new(&self.id)).map_err(|error| error.to_string())
            });
        match removed {
            Ok(removed) if removed.left == 0 => {}
            Ok(removed) => {
                log::error!("jail {}: {} entries could not be removed", self.id, removed.left);
            }
            Err(error) => log::error!("jail {}: {error}", self.id),
        }
        for group in &self.groups {
            // It does not exist if the jailer had no cgroup settings.
            let _ = fs::remove_dir(group);
        }
    }
}

/// A started Firecracker process.
struct VmmProcess {
    child: Child,
    /// Dropped after the process was killed: see [`Drop`].
    place: MachineDir,
    calls: UnixListener,
    console: Console,
    over: Option<String>,
}

impl VmmProcess {
    fn configure(
        &mut self,
        asked: &[(&'static str, serde_json::Value)],
        boot: Deadline,
    ) -> Result<(), SetupFailure> {
        let api = ApiClient::at(self.place.directory.join(API_SOCKET));
        if let Err(fault) = api.wait(boot, || self.is_over().is_none()) {
            let why = self.over.take().unwrap_or_else(|| fault.to_string());
            return Err(SetupFailure::from_words("firecracker", why));
        }
        for (path, body) in asked {
            let deadline = boot.min(Deadline::after(ANSWER_WAIT));
            api.put(path, body, deadline).map_err(|fault| {
                if matches!(fault, ApiError::Socket(_) | ApiError::Malformed(_)) {
                    // The socket is gone before the process.
                    wait(self, Deadline::after(END_WAIT));
                }
                let why = self.is_over().map(|over| format!("; {over}")).unwrap_or_default();
                SetupFailure::from_words(format!("firecracker PUT {path}"), format!("{fault}{why}"))
            })?;
        }
        Ok(())
    }
}

impl Machine for VmmProcess {
    fn calls(&self) -> &UnixListener {
        &self.calls
    }

    fn is_over(&mut self) -> Option<String> {
        if self.over.is_none()
            && let Ok(Some(status)) = self.child.try_wait()
        {
            let ended = match (status.code(), status.signal()) {
                (Some(code), _) => format!("it exited with code {code}"),
                (_, signal) => format!("signal {} ended it", signal.unwrap_or(0)),
            };
            self.over = Some(match self.console.last_words() {
                words if words.is_empty() => ended,
                words => format!("{ended}: {words}"),
            });
        }
        self.over.clone()
    }

    fn end(&mut self, by_itself: Duration) -> Result<(), SetupFailure> {
        if wait(self, Deadline::after(by_itself)) {
            return Ok(());
        }
        let _ = self.child.kill();
        if wait(self, Deadline::after(KILL_WAIT)) {
            return Ok(());
        }
        Err(SetupFailure::from_words("firecracker", "it is still alive after SIGKILL"))
    }
}

/// Waits until the process has ended. Returns false if `deadline` passes first.
fn wait(process: &mut VmmProcess, deadline: Deadline) -> bool {
    while process.is_over().is_none() {
        if deadline.passed() {
            return false;
        }
        thread::sleep(LOOK_AGAIN.min(deadline.remaining()));
    }
    true
}

impl Drop for VmmProcess {
    fn drop(&mut self) {
        if let Err(failure) = self.end(Duration::ZERO) {
            log::error!("{failure}");
            // The process may still write to the jail, so it is not removed.
            std::mem::forget(self.place.jail.take());
        }
    }
}
