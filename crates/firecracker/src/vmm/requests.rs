//! What is asked of Firecracker to make a machine, in order. Pure.
//!
//! No network interface is ever asked for: a machine has a processor, memory, two drives and a
//! socket to its host.

use std::path::Path;

use serde_json::{Value, json};

/// The guest's number on its side of the socket; each machine has a socket of its own.
const GUEST_CID: u32 = 3;
/// The guest's first program, in the root image or the initramfs.
pub const GUEST_PROGRAM: &str = "/sbin/cofferdam-guest";
/// What every kernel is told: one console, that its end is the machine's, and what need not be
/// looked for.
const BOOT_ARGUMENTS: &str = "console=ttyS0 quiet reboot=k panic=-1 pci=off i8042.noaux i8042.nomux \
                              i8042.nopnp i8042.dumbkbd random.trust_cpu=on";

/// Where the parts of a machine are, as Firecracker sees them.
#[derive(Debug, Clone, Copy)]
pub struct MachineParts<'a> {
    /// The kernel.
    pub kernel: &'a Path,
    /// An initramfs that has the guest's first program, where the root image has it not.
    pub initrd: Option<&'a Path>,
    /// The image of the root file system.
    pub root_image: &'a Path,
    /// The drive that workspaces come and go by.
    pub scratch: &'a Path,
    /// The socket into the guest.
    pub vsock: &'a Path,
    /// Further words for the kernel.
    pub boot_arguments: &'a str,
    /// Virtual processors.
    pub vcpus: u8,
    /// Memory, MiB.
    pub memory_mib: u64,
}

/// Path and body of each request; each is a PUT.
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

/// The root image, which is read alone, or the one drive that a guest may write to.
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
    fn a_machine_is_asked_for_in_the_golden_words() {
        let asked = requests(&parts());
        let lines: Vec<String> =
            asked.iter().map(|(path, body)| format!("PUT {path} {body}\n")).collect();
        assert_eq!(lines.concat(), include_str!("golden/requests.txt"));
    }

    #[test]
    fn an_initramfs_has_the_first_program_itself() {
        let initrd = Some(Path::new("/images/initrd"));
        let asked = requests(&MachineParts { initrd, boot_arguments: "loglevel=7", ..parts() });
        let boot = &asked[1].1;
        assert_eq!(boot["initrd_path"], "/images/initrd");
        let arguments = boot["boot_args"].as_str().unwrap();
        assert!(arguments.ends_with(" rdinit=/sbin/cofferdam-guest loglevel=7"), "{arguments}");
        assert!(!arguments.contains(" init="), "{arguments}");
    }

    #[test]
    fn no_machine_is_given_a_network_or_a_second_drive_to_write_to() {
        for initrd in [None, Some(Path::new("/i"))] {
            let asked = requests(&MachineParts { initrd, ..parts() });
            assert!(asked.iter().all(|(path, _)| !path.starts_with("/network")), "{asked:?}");
            let writable = asked.iter().filter(|(_, body)| body["is_read_only"] == false);
            let writable: Vec<_> = writable.map(|(path, _)| *path).collect();
            assert_eq!(writable, ["/drives/scratch"]);
        }
    }
}
