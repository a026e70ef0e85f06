//! The command line of Firecracker's jailer, and the paths in a jail. Pure.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The file name of the API socket in the machine's directory.
pub const API_SOCKET: &str = "api.sock";

/// The configuration of the jailer, which confines Firecracker on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jailer {
    /// The `jailer` binary, of the same release as `firecracker`.
    pub binary: PathBuf,
    /// The user id that Firecracker runs as. The user should own nothing else.
    pub uid: u32,
    /// The group id that Firecracker runs as.
    pub gid: u32,
    /// The directory for jails. Kernel, images and work directory must be on the same file system,
    /// because jails have hard links to them.
    pub chroot_base: PathBuf,
    /// The cgroup version, 1 or 2.
    pub cgroup_version: u8,
    /// The parent of the machines' cgroups; the jailer's default if `None`.
    pub parent_cgroup: Option<String>,
    /// Settings of each machine's cgroup: `memory.max=1G`.
    pub cgroups: Vec<String>,
    /// The network namespace of Firecracker. One without interfaces is best: machines have none.
    pub netns: Option<PathBuf>,
    /// Resource limits of the process: `no-file=256`, `fsize=1073741824`.
    pub resource_limits: Vec<String>,
}

impl Jailer {
    /// The arguments that start `firecracker` as machine `id` in a jail.
    pub fn arguments(&self, firecracker: &Path, id: &str) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = Vec::new();
        let mut add = |name: &str, value: OsString| arguments.extend([name.into(), value]);
        add("--id", id.into());
        add("--exec-file", firecracker.into());
        add("--uid", self.uid.to_string().into());
        add("--gid", self.gid.to_string().into());
        add("--chroot-base-dir", self.chroot_base.clone().into());
        add("--cgroup-version", self.cgroup_version.to_string().into());
        if let Some(parent) = &self.parent_cgroup {
            add("--parent-cgroup", parent.into());
        }
        for group in &self.cgroups {
            add("--cgroup", group.into());
        }
        for limit in &self.resource_limits {
            add("--resource-limit", limit.into());
        }
        if let Some(netns) = &self.netns {
            add("--netns", netns.clone().into());
        }
        // Without --daemonize and --new-pid-ns, the child process is the machine until its end.
        arguments.push("--".into());
        arguments.extend(["--api-sock".into(), format!("/{API_SOCKET}").into()]);
        arguments
    }

    /// The directory of all jails of `firecracker`.
    pub fn jails(&self, firecracker: &Path) -> PathBuf {
        self.chroot_base.join(firecracker.file_name().unwrap_or_default())
    }

    /// The root directory of machine `id`.
    pub fn root(&self, firecracker: &Path, id: &str) -> PathBuf {
        self.jails(firecracker).join(id).join("root")
    }

    /// The cgroups of machine `id` below `mounted`, which the jailer does not remove.
    pub fn groups(&self, mounted: &Path, firecracker: &Path, id: &str) -> Vec<PathBuf> {
        let own = firecracker.file_name().map(|name| name.to_string_lossy().into_owned());
        let parent = self.parent_cgroup.clone().or(own).unwrap_or_default();
        let below = |hierarchy: PathBuf| hierarchy.join(&parent).join(id);
        if self.cgroup_version == 2 {
            return vec![below(mounted.to_owned())];
        }
        let controller = |group: &String| group.split('.').next().unwrap_or_default().to_owned();
        let mut controllers: Vec<String> = self.cgroups.iter().map(controller).collect();
        controllers.dedup();
        controllers.into_iter().map(|controller| below(mounted.join(controller))).collect()
    }
}

/// The arguments that start Firecracker as machine `id` without a jail, in its own directory.
pub fn unjailed(id: &str) -> Vec<OsString> {
    ["--id", id, "--api-sock", API_SOCKET].map(OsString::from).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jailer() -> Jailer {
        Jailer {
            binary: "/usr/bin/jailer".into(),
            uid: 991,
            gid: 992,
            chroot_base: "/srv/jailer".into(),
            cgroup_version: 2,
            parent_cgroup: None,
            cgroups: Vec::new(),
            netns: None,
            resource_limits: Vec::new(),
        }
    }

    fn line(jailer: &Jailer) -> String {
        let arguments = jailer.arguments(Path::new("/usr/bin/firecracker"), "vm-1");
        arguments.join(" ".as_ref()).into_string().unwrap()
    }

    #[test]
    fn the_command_line_is_the_golden_one() {
        assert_eq!(
            line(&jailer()),
            "--id vm-1 --exec-file /usr/bin/firecracker --uid 991 --gid 992 \
             --chroot-base-dir /srv/jailer --cgroup-version 2 -- --api-sock /api.sock"
        );
        let all = Jailer {
            cgroup_version: 1,
            parent_cgroup: Some("cofferdam/machines".to_owned()),
            cgroups: vec!["memory.limit_in_bytes=1G".to_owned(), "cpu.shares=10".to_owned()],
            netns: Some("/run/netns/none".into()),
            resource_limits: vec!["no-file=256".to_owned()],
            ..jailer()
        };
        assert_eq!(
            line(&all),
            "--id vm-1 --exec-file /usr/bin/firecracker --uid 991 --gid 992 \
             --chroot-base-dir /srv/jailer --cgroup-version 1 --parent-cgroup cofferdam/machines \
             --cgroup memory.limit_in_bytes=1G --cgroup cpu.shares=10 --resource-limit no-file=256 \
             --netns /run/netns/none -- --api-sock /api.sock"
        );
        assert_eq!(unjailed("vm-1"), ["--id", "vm-1", "--api-sock", "api.sock"]);
    }

    #[test]
    fn the_paths_that_the_jailer_leaves_behind_are_known() {
        let (firecracker, mounted) =
            (Path::new("/usr/bin/firecracker"), Path::new("/sys/fs/cgroup"));
        let root = jailer().root(firecracker, "vm-1");
        assert_eq!(root, Path::new("/srv/jailer/firecracker/vm-1/root"));
        let groups = jailer().groups(mounted, firecracker, "vm-1");
        assert_eq!(groups, [Path::new("/sys/fs/cgroup/firecracker/vm-1")]);
        let old = Jailer {
            cgroup_version: 1,
            parent_cgroup: Some("machines".to_owned()),
            cgroups: ["memory.a=1", "memory.b=2", "cpu.c=3"].map(str::to_owned).to_vec(),
            ..jailer()
        };
        let groups = old.groups(mounted, firecracker, "vm-1");
        let want = ["/sys/fs/cgroup/memory/machines/vm-1", "/sys/fs/cgroup/cpu/machines/vm-1"];
        assert_eq!(groups, want.map(PathBuf::from));
    }
}
