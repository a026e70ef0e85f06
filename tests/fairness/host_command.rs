//! The command of the short neighbour without the service, to know which part of a delay is the
//! kernel's.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_test_server::host::Footprint;
use cofferdam_test_server::service::Service;
use cofferdam_test_server::workspace::Workspace;

use crate::latency::SHORT;

/// Joins the group `$0`, reports it, and executes the rest when told to. Joining can wait for all
/// CPUs of the host. Sandboxes join in other ways.
const JOIN_AND_WAIT: &str = r#"echo 0 >"$0"/cgroup.procs && echo && read -r _ && exec "$@""#;

/// `make test` as a host service could run it, with the kernel features that every sandbox needs:
/// namespaces and a CPU group. The group lies beside the one of all sandboxes, so neither the
/// weight nor the time slice of a sandbox changes the result.
#[derive(Debug)]
pub struct HostCommand {
    workspace: Workspace,
    groups: PathBuf,
}

impl HostCommand {
    /// For a host where `service` divides CPU time among its sandboxes.
    pub fn beside(service: &Service) -> Self {
        let mut ours = Footprint::of(service.pid()).cgroups();
        ours.retain(|group| hands_down_cpus(group));
        // The groups of its sandboxes lie below.
        let top = ours.into_iter().min_by_key(|group| group.as_os_str().len());
        let groups = top.and_then(|top| top.parent().map(Path::to_owned));
        let workspace = Workspace::shell().with("solution/solution.sh", SHORT);
        Self { workspace, groups: groups.expect("a directory of CPU groups") }
    }

    /// How long one command takes, from the signal to begin until it is reaped.
    pub fn time(&self) -> Duration {
        let group = Group::below(&self.groups);
        let mut child = Command::new("sh")
            .args(["-c", JOIN_AND_WAIT])
            .arg(&group.0)
            .args(["unshare", "--mount", "--ipc", "--uts", "--net", "--pid", "--fork"])
            .args(["make", "-s", "test"])
            .current_dir(self.workspace.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        stdout.read_exact(&mut [0]).unwrap();
        let start = Instant::now();
        stdin.write_all(b"\n").unwrap();
        let mut printed = String::new();
        stdout.read_to_string(&mut printed).unwrap();
        let status = child.wait().unwrap();
        let took = start.elapsed();
        assert!(status.success() && printed.is_empty(), "{status}: {printed:?}");
        took
    }
}

/// Whether the groups below `group` have CPU shares.
fn hands_down_cpus(group: &Path) -> bool {
    let handed_down = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    group.join("cpu.shares").exists() || handed_down.split_whitespace().any(|name| name == "cpu")
}

/// A cgroup that is removed on drop.
struct Group(PathBuf);

impl Group {
    fn below(groups: &Path) -> Self {
        let group = groups.join(format!("host-command-{}", std::process::id()));
        fs::create_dir(&group).unwrap();
        Self(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Its processes have been waited for. A group that remains fails the next test.
        let _ = fs::remove_dir(&self.0);
    }
}
