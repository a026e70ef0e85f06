//! Tests of the shipped filters in the running kernel.

use std::net::{TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket, socketpair};
use nix::unistd::{chroot, pivot_root};

use super::*;

/// Runs `probe` on a new thread under the filter of profile `name`. Its children inherit the filter.
fn under<T: Send>(name: &str, probe: impl FnOnce() -> T + Send) -> T {
    let filter = Profile::parse_builtin(Arch::NATIVE, name).unwrap().filter;
    let program: seccompiler::BpfProgram = filter
        .program
        .iter()
        .map(|i| seccompiler::sock_filter { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect();
    thread::scope(|scope| {
        let filtered = scope.spawn(|| {
            seccompiler::apply_filter(&program).unwrap();
            probe()
        });
        filtered.join().unwrap()
    })
}

fn socket_error(family: AddressFamily, kind: SockType) -> Option<Errno> {
    socket(family, kind, SockFlag::SOCK_CLOEXEC, None).err()
}

#[test]
fn refused_calls_fail_with_the_errors_of_the_profile() {
    under("default", || {
        // The tests may run as root, so these would otherwise succeed or fail differently.
        assert_eq!(unshare(CloneFlags::CLONE_NEWUSER), Err(Errno::EPERM));
        assert_eq!(unshare(CloneFlags::empty()), Err(Errno::EPERM));
        let own = std::fs::File::open("/proc/self/ns/uts").unwrap();
        assert_eq!(setns(own, CloneFlags::CLONE_NEWUTS), Err(Errno::EPERM));
        let nothing = None::<&str>;
        let no_flags = MsFlags::empty();
        assert_eq!(mount(nothing, "/nowhere", nothing, no_flags, nothing), Err(Errno::EPERM));
        assert_eq!(umount2("/nowhere", MntFlags::empty()), Err(Errno::EPERM));
        assert_eq!(chroot("/nowhere"), Err(Errno::EPERM));
        assert_eq!(pivot_root("/nowhere", "/nowhere"), Err(Errno::EPERM));
        for (family, kind, want) in [
            (AddressFamily::Vsock, SockType::Stream, Errno::EAFNOSUPPORT),
            (AddressFamily::Alg, SockType::SeqPacket, Errno::EAFNOSUPPORT),
            (AddressFamily::Packet, SockType::Raw, Errno::EAFNOSUPPORT),
            (AddressFamily::Inet, SockType::Raw, Errno::EPERM),
            (AddressFamily::Inet6, SockType::Raw, Errno::EPERM),
        ] {
            assert_eq!(socket_error(family, kind), Some(want), "{family:?} {kind:?}");
        }
        let pair = socketpair(AddressFamily::Vsock, SockType::Stream, None, SockFlag::empty());
        assert_eq!(pair.err(), Some(Errno::EAFNOSUPPORT));
    });
}

#[test]
fn ordinary_programs_do_not_notice_the_filter() {
    let output = under("default", || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        thread::spawn(|| ()).join().unwrap();
        assert_eq!(socket_error(AddressFamily::Netlink, SockType::Raw), Some(Errno::EAFNOSUPPORT));
        Command::new("sh")
            .args(["-c", "(echo one; ls / >/dev/null) | cat; echo $((1 + 1))"])
            .output()
    });
    assert_eq!(String::from_utf8(output.unwrap().stdout).unwrap(), "one\n2\n");
}

#[test]
fn the_strict_filter_leaves_threads_and_files() {
    under("strict-native", || {
        thread::spawn(|| ()).join().unwrap();
        assert!(std::fs::read("/proc/self/status").unwrap().starts_with(b"Name:"));
        let started = Command::new("true").status().expect_err("a process was started");
        assert_eq!(started.raw_os_error(), Some(libc::EPERM));
        let unix = socket_error(AddressFamily::Unix, SockType::Stream);
        assert_eq!(unix, Some(Errno::EAFNOSUPPORT));
    });
}
