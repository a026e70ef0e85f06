//! The init of a sandbox as the library embeds it: a program file in memory.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};

use crate::sys;

pub mod wire;

/// `init/main.rs`, built by `build.rs`.
static PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/init"));

/// The init's program file, sealed so that no sandbox can change what the next one executes.
pub fn program() -> io::Result<BorrowedFd<'static>> {
    static FILE: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(file) = FILE.get() {
        return Ok(file.as_fd());
    }
    let file = sealed_program()?;
    Ok(FILE.get_or_init(|| file).as_fd())
}

fn sealed_program() -> io::Result<OwnedFd> {
    let mut file = File::from(sys::memory_file(c"cofferdam-init", true)?);
    file.write_all(PROGRAM)?;
    let seals = SealFlag::F_SEAL_WRITE
        | SealFlag::F_SEAL_GROW
        | SealFlag::F_SEAL_SHRINK
        | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file.into())
}
