//! The short neighbour's command without us: what of a delay is the kernel's.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cofferdam_test_server::host::Footprint;
use cofferdam_test_server::service::Service;
use cofferdam_test_server::workspace::Workspace;

use crate::latency::SHORT;

/// Joins the group `$0`, says so, and becomes the rest when it is told to. The joining can wait
/// for all CPUs of the host; boxes have ways of their own that need not.
const JOIN_AND_WAIT: &str = r#"echo 0 >"$0"/cgroup.procs && echo && read -r _ && exec "$@""#;

/// `make test` as a service of the host's could run it, with of the kernel what no box can do
/// without: namespaces, and a CPU group. That lies beside the one of all our boxes, so that
/// neither what a box weighs nor any slice that we ask for moves it.
#[derive(Debug)]
pub struct HostCommand {
    workspace: Workspace,
    groups: PathBuf,
}

impl HostCommand {
    /// On a host where `service` divides CPU time among its boxes.
    pub fn beside(service: &Service) -> Self {
        let mut ours = Footprint::of(service.pid()).cgroups();
        ours.retain(|group| hands_down_cpus(group));
        // Those of its boxes, if there are any, lie below.
        let top = ours.into_iter().min_by_key(|group| group.as_os_str().len());
        let groups = top.and_then(|top| top.parent().map(Path::to_owned));
        let workspace = Workspace::shell().with("solution/solution.sh", SHORT);
        Self { workspace, groups: groups.expect("a directory of CPU groups") }
    }

    /// What one takes, from the word to begin until it is reaped.
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

/// Whether the groups below `group` have shares of the CPUs.
fn hands_down_cpus(group: &Path) -> bool {
    let handed_down = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    group.join("cpu.shares").exists() || handed_down.split_whitespace().any(|name| name == "cpu")
}

/// A cgroup that is gone with this value.
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
        // Whoever was in it has been waited for; what stays shows the next time.
        let _ = fs::remove_dir(&self.0);
    }
}
