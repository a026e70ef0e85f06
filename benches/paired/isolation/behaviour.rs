//! What programs in a sandbox can do. Each has a control, a harmless program of the same kind that must succeed: without
//! it a sandbox in which nothing runs would seem the safest.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;

use super::seen::Resource;
use super::yes;
use crate::peers::Sandbox;

const PYTHON: &str = "/usr/bin/python3";

/// Whether a program reads a file that anybody on the host may read, in a directory that no program needs. `None` if
/// it cannot even read what is shown.
pub fn reads_host_files(sandbox: &mut dyn Sandbox) -> Option<String> {
    let directory = tempfile::tempdir_in("/var/tmp").ok()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o755)).ok()?;
    let file = directory.path().join("file");
    fs::write(&file, "of the host").ok()?;
    let read = |file| ["/usr/bin/head", "-c", "1", file];
    succeeds_beside(sandbox, &read("/usr/bin/env"), &read(file.to_str()?)).map(yes)
}

/// Whether a program can connect to a server on the host's loopback.
pub fn reaches_host_servers(sandbox: &mut dyn Sandbox) -> Option<String> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let port = server.local_addr().ok()?.port();
    let connect = format!("import socket; socket.create_connection(('127.0.0.1', {port}), 1)");
    succeeds_beside(sandbox, &[PYTHON, "-c", "import socket"], &[PYTHON, "-c", &connect]).map(yes)
}

/// Whether a limit of the sandbox stops a program that takes much more of the resource.
pub fn holds(sandbox: &mut dyn Sandbox, resource: Resource) -> Option<bool> {
    let program = |amount: u32| match resource {
        Resource::Memory => format!("len(b'x' * ({amount} << 22))"),
        Resource::Processes => format!(
            "import os, time
for _ in range({amount}):
    if not os.fork():
        time.sleep(0.5)
        os._exit(0)"
        ),
        Resource::CpuTime => {
            format!("import time\nwhile time.process_time() < {amount} / 25: pass")
        }
    };
    exceeds(sandbox, &program(1), &program(50))
}

/// Whether it stops processes each of which takes less CPU time than it may, and which take more together.
pub fn holds_together(sandbox: &mut dyn Sandbox) -> Option<bool> {
    let program = |processes: u32| {
        format!(
            "import os, time
for _ in range({processes}):
    if not os.fork():
        while time.process_time() < 0.8: pass
        os._exit(0)
for _ in range({processes}):
    if os.wait()[1]: os._exit(1)"
        )
    };
    exceeds(sandbox, &program(1), &program(4))
}

/// Whether it stops a program that sleeps longer than it may.
pub fn holds_time(sandbox: &mut dyn Sandbox) -> Option<bool> {
    let sleep = |seconds: f64| format!("import time; time.sleep({seconds})");
    exceeds(sandbox, &sleep(0.01), &sleep(2.0))
}

fn exceeds(sandbox: &mut dyn Sandbox, little: &str, much: &str) -> Option<bool> {
    succeeds_beside(sandbox, &[PYTHON, "-c", little], &[PYTHON, "-c", much]).map(|it| !it)
}

/// Whether the program succeeds; `None` if the control does not.
fn succeeds_beside(sandbox: &mut dyn Sandbox, control: &[&str], program: &[&str]) -> Option<bool> {
    sandbox.run(control).ok()?;
    Some(sandbox.run(program).is_ok())
}
