//! QEMU in place of Firecracker, with the same guest, drives and socket.

use std::env;
use std::fs::File;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam_core::SetupFailure;
use cofferdam_firecracker::{Hypervisor, Machine, MachinePlan, VSOCK, listen};

/// The parts of guests, from environment variables.
#[derive(Debug)]
pub struct Qemu {
    kernel: PathBuf,
    initrd: PathBuf,
    root: PathBuf,
    vsock_device: PathBuf,
}

impl Qemu {
    /// The parts that `ci/test_firecracker.py` has prepared.
    pub fn prepared() -> Self {
        let path = |name: &str| {
            let value = env::var_os(name);
            PathBuf::from(value.unwrap_or_else(|| panic!("{name}: make test-firecracker sets it")))
        };
        Self {
            kernel: path("GUEST_KERNEL"),
            initrd: path("GUEST_INITRD"),
            root: path("GUEST_ROOT"),
            vsock_device: path("VSOCK_DEVICE"),
        }
    }
}

struct Emulated {
    calls: UnixListener,
    machine: Child,
    vsock_device: Child,
    console: PathBuf,
}

impl Hypervisor for Qemu {
    fn boot(&self, plan: &MachinePlan<'_>) -> Result<Box<dyn Machine>, SetupFailure> {
        let path = |name: &str| plan.directory.join(name);
        let calls = listen(plan.directory).unwrap();
        let (control, console) = (path("vhost.sock"), path("console"));
        let vsock = path(VSOCK);
        let vsock_device = Command::new(&self.vsock_device)
            .arg("--vm")
            .arg(format!("guest-cid=3,socket={},uds-path={}", control.display(), vsock.display()))
            .stdout(File::create(path("vhost.log")).unwrap())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let began = Instant::now();
        while !control.exists() {
            assert!(began.elapsed() < Duration::from_secs(10), "no vsock device");
            thread::sleep(Duration::from_millis(10));
        }
        let drive =
            |path: &Path, more: &str| format!("file={},format=raw,if=virtio{more}", path.display());
        let memory = format!("memory-backend-memfd,id=memory,size={}M,share=on", plan.memory_mib);
        let machine = Command::new("qemu-system-x86_64")
            // With a thread for each processor, QEMU's own tables race while a guest maps its devices.
            .args(["-accel", "tcg,thread=single", "-cpu", "max", "-nodefaults", "-no-reboot"])
            .args(["-display", "none", "-nic", "none", "-machine", "pc,memory-backend=memory"])
            .args(["-smp", &plan.vcpus.to_string(), "-m", &plan.memory_mib.to_string()])
            .args(["-object", &memory])
            .args(["-serial", &format!("file:{}", console.display())])
            .arg("-kernel")
            .arg(&self.kernel)
            .arg("-initrd")
            .arg(&self.initrd)
            .args(["-append", "console=ttyS0 quiet panic=-1 cgroup_no_v1=all"])
            .args(["-drive", &drive(&self.root, ",readonly=on")])
            .args(["-drive", &drive(&plan.scratch, ",cache=writeback")])
            .args(["-chardev", &format!("socket,id=vsock,path={}", control.display())])
            .args(["-device", "vhost-user-vsock-pci,chardev=vsock"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Ok(Box::new(Emulated { calls, machine, vsock_device, console }))
    }
}

impl Machine for Emulated {
    fn calls(&self) -> &UnixListener {
        &self.calls
    }

    fn is_over(&mut self) -> Option<String> {
        let status = self.machine.try_wait().unwrap()?;
        let console = std::fs::read(&self.console).unwrap_or_default();
        let console = String::from_utf8_lossy(&console).into_owned();
        Some(format!("QEMU ended with {status}: {console}"))
    }

    fn end(&mut self, by_itself: Duration) -> Result<(), SetupFailure> {
        let began = Instant::now();
        while self.machine.try_wait().unwrap().is_none() && began.elapsed() < by_itself {
            thread::sleep(Duration::from_millis(10));
        }
        for child in [&mut self.machine, &mut self.vsock_device] {
            let _ = child.kill();
            child.wait().unwrap();
        }
        if env::var_os("GUEST_CONSOLE").is_some() {
            println!("{}", String::from_utf8_lossy(&std::fs::read(&self.console).unwrap()));
        }
        Ok(())
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        let _ = self.end(Duration::ZERO);
    }
}
