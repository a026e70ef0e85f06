//! The API requests that configure and start a machine, in order. Pure.
//!
//! A machine has processors, memory, two drives and a vsock, and never a network interface.

use std::path::Path;

use serde_json::{Value, json};

/// The vsock context id of every guest: each machine has its own socket.
const GUEST_CID: u32 = 3;
/// The path of the guest's init, in the root image or the initramfs.
pub const GUEST_PROGRAM: &str = "/sbin/cofferdam-guest";
/// The kernel arguments of every machine: one console, reboot ends the machine, and no probing for
/// missing devices.
const BOOT_ARGUMENTS: &str = "console=ttyS0 quiet reboot=k panic=-1 pci=off i8042.noaux i8042.nomux \
                              i8042.nopnp i8042.dumbkbd random.trust_cpu=on";

/// The parts of a machine, with paths as Firecracker sees them.
#[derive(Debug, Clone, Copy)]
pub struct MachineParts<'a> {
    /// The kernel.
    pub kernel: &'a Path,
    /// An initramfs with the guest's init, if the root image has none.
    pub initrd: Option<&'a Path>,
    /// The image of the root file system.
    pub root_image: &'a Path,
    /// The drive for workspaces.
    pub scratch: &'a Path,
    /// The vsock socket.
    pub vsock: &'a Path,
    /// Further kernel arguments.
    pub boot_arguments: &'a str,
    /// Virtual processors.
    pub vcpus: u8,
    /// Memory, MiB.
    pub memory_mib: u64,
}

/// The path and the body of each PUT request.
pub fn requests(parts: &MachineParts<'_>) -> Vec<(&'static str, Value)> {
    let first = if parts.initrd.is_some() { "rdinit" } else { "init" };
    let mut arguments = format!("{BOOT_ARGUMENTS} {first}={GUEST_PROGRAM}");
    if !parts.boot_arguments.is_empty() {
        arguments = format!("{arguments} {}", parts.boot_arguments);
    }
    let mut boot = json!({"kernel_image_path": parts.kernel, "boot_args": arguments});
    if let (Some(initrd), Some(boot)) = (parts.initrd, boot.as_object_mut()) {
        boot.insert("initrd_path".to_owned(), json!(initrd));
    }
    vec![
        (
            "/machine-config",
            json!({"vcpu_count": parts.vcpus, "mem_size_mib": parts.memory_mib, "smt": false}),
        ),
        ("/boot-source", boot),
        ("/drives/rootfs", drive("rootfs", parts.root_image, true)),
        ("/drives/scratch", drive("scratch", parts.scratch, false)),
        ("/vsock", json!({"guest_cid": GUEST_CID, "uds_path": parts.vsock})),
        ("/actions", json!({"action_type": "InstanceStart"})),
    ]
}

/// The read-only root image, or the only drive that a guest can write to.
fn drive(id: &str, path: &Path, is_root: bool) -> Value {
    json!({
        "drive_id": id,
        "path_on_host": path,
        "is_root_device": is_root,
        "is_read_only": is_root,
        "cache_type": "Unsafe",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> MachineParts<'static> {
        MachineParts {
            kernel: Path::new("/images/vmlinux"),
            initrd: None,
            root_image: Path::new("/images/root.ext4"),
            scratch: Path::new("scratch"),
            vsock: Path::new("v.sock"),
            boot_arguments: "",
            vcpus: 2,
            memory_mib: 1024,
        }
    }

    #[test]
    fn the_requests_of_a_machine_are_the_golden_ones() {
        let asked = requests(&parts());
        let lines: Vec<String> =
            asked.iter().map(|(path, body)| format!("PUT {path} {body}\n")).collect();
        assert_eq!(lines.concat(), include_str!("golden/requests.txt"));
    }

    #[test]
    fn an_initramfs_has_the_init() {
        let initrd = Some(Path::new("/images/initrd"));
        let asked = requests(&MachineParts { initrd, boot_arguments: "loglevel=7", ..parts() });
        let boot = &asked[1].1;
        assert_eq!(boot["initrd_path"], "/images/initrd");
        let arguments = boot["boot_args"].as_str().unwrap();
        assert!(arguments.ends_with(" rdinit=/sbin/cofferdam-guest loglevel=7"), "{arguments}");
        assert!(!arguments.contains(" init="), "{arguments}");
    }

    #[test]
    fn no_machine_has_a_network_or_a_second_writable_drive() {
        for initrd in [None, Some(Path::new("/i"))] {
            let asked = requests(&MachineParts { initrd, ..parts() });
            assert!(asked.iter().all(|(path, _)| !path.starts_with("/network")), "{asked:?}");
            let writable = asked.iter().filter(|(_, body)| body["is_read_only"] == false);
            let writable: Vec<_> = writable.map(|(path, _)| *path).collect();
            assert_eq!(writable, ["/drives/scratch"]);
        }
    }
}
