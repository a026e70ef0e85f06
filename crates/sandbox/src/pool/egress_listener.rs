//! The socket of a sandbox that may reach something.
//!
//! It listens before the program begins, so no program can take its port: two sockets share one only
//! if neither listens, or both were opened for that. Nothing in the sandbox has a descriptor of it.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;

use nix::sched::{CloneFlags, setns};
use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::ReusePort;
use nix::unistd::{Uid, fchown};

use crate::sys;
use cofferdam_core::EGRESS_PORT;

/// The thread makes a few system calls.
const LISTENER_STACK_BYTES: usize = 64 << 10;

/// Listens in the network namespace `namespace`.
///
/// # Errors
/// The namespace cannot be entered, or the port is taken.
pub fn listener_in(namespace: BorrowedFd<'_>) -> io::Result<TcpListener> {
    let listen = || -> io::Result<TcpListener> {
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        // Without privileges the init raises it too, now or later.
        sys::raise_loopback()?;
        TcpListener::bind((Ipv4Addr::LOCALHOST, EGRESS_PORT))
    };
    // On a thread of its own: one that could not return to the service's namespace would be lost.
    thread::scope(|scope| {
        let named =
            thread::Builder::new().name("egress".to_owned()).stack_size(LISTENER_STACK_BYTES);
        let listening = named.spawn_scoped(scope, listen)?;
        listening.join().unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
    })
}

/// Gives `listener` to the user `id`, whose sockets may then share its port.
pub fn share(listener: &TcpListener, id: u32) -> io::Result<()> {
    setsockopt(listener, ReusePort, &true)?;
    Ok(fchown(listener, Some(Uid::from_raw(id)), None)?)
}

/// Listens in the network namespace of the process `pid`.
pub fn listener_of(pid: i32) -> io::Result<TcpListener> {
    listener_in(File::open(format!("/proc/{pid}/ns/net"))?.as_fd())
}
