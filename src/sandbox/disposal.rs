//! The end of a dead box's file system, behind the answer where it takes long.
//!
//! The kernel frees what a tenant has built one by one: a quarter of a second for as many files as it
//! may have. Nobody who waits for the answer is to pay for that.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, LazyLock};
use std::thread::Builder;

use super::box_fs::BoxFs;
use crate::base::slots::Slots;

/// What is freed in less than a millisecond or two.
const SMALL_BYTES_MAX: u64 = 16 << 20;
/// The same, in files and directories.
const SMALL_INODES_MAX: u64 = 512;
/// As many may be going at once, each with all the bytes that a box may have; the next one's answer
/// waits for its own.
const GOING_MAX: usize = 8;

static GOING: LazyLock<Arc<Slots>> = LazyLock::new(|| Slots::new(GOING_MAX));

/// Has the kernel look for files that only sockets of the dead hold, under way from one to the other:
/// it looks when somebody closes a socket, and on a quiet host that may be nobody for long.
pub fn collect_files_under_way() {
    drop(UnixStream::pair());
}

/// Lets go of `fs`, on a thread of its own if that takes long.
pub fn dispose(fs: BoxFs) {
    let is_small = fs
        .used()
        .is_ok_and(|(bytes, inodes)| bytes <= SMALL_BYTES_MAX && inodes <= SMALL_INODES_MAX);
    let Some(going) = (!is_small).then(|| GOING.try_enter()).flatten() else { return };
    let let_go = move || {
        drop(fs);
        drop(going);
    };
    if let Err(error) = Builder::new().name("disposal".to_owned()).spawn(let_go) {
        // What the thread would have had is gone with it, here and now.
        log::warn!("disposal: {error}");
    }
}
