//! Loop devices, by the requests of `<linux/loop.h>`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const CONTROL: &str = "/dev/loop-control";
const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
/// The device is freed when it is closed and unmounted for the last time.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// How long a free device is looked for while other processes are faster, and how often.
const BUSY_WAIT: Duration = Duration::from_secs(5);
const BUSY_PAUSE: Duration = Duration::from_millis(1);
/// The kernel names the same free device to all that ask, until one of them has taken it. Threads of this process do
/// both in turn.
static TURN: Mutex<()> = Mutex::new(());

/// `struct loop_config`, with only the fields that are set here by name.
#[repr(C)]
struct LoopConfig {
    image: u32,
    block_bytes: u32,
    before_flags: [u64; 5],
    types_and_key_length: [u32; 3],
    flags: u32,
    names_and_key: [u64; 22],
    reserved: [u64; 8],
}

/// A loop device that is freed with its last mount.
#[derive(Debug)]
pub(super) struct LoopDevice {
    pub(super) path: String,
    /// Keeps the device until it is mounted.
    _open: File,
}

impl LoopDevice {
    /// Gives a free device the content of `image`.
    pub(super) fn over(image: BorrowedFd<'_>) -> io::Result<Self> {
        let control = OpenOptions::new().read(true).write(true).open(CONTROL)?;
        let deadline = Instant::now() + BUSY_WAIT;
        loop {
            match Self::first_free(&control, image) {
                Err(error) if is_busy(&error) && Instant::now() < deadline => {
                    thread::sleep(BUSY_PAUSE);
                }
                result => return result,
            }
        }
    }

    /// Takes the device that the kernel names as free, unless another process is faster.
    fn first_free(control: &File, image: BorrowedFd<'_>) -> io::Result<Self> {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the request takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        if number < 0 {
            return Err(io::Error::last_os_error());
        }
        let path = format!("/dev/loop{number}");
        let open = OpenOptions::new().read(true).write(true).open(&path)?;
        configure(&open, image)?;
        Ok(Self { path, _open: open })
    }
}

fn is_busy(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBUSY)
}

fn configure(device: &File, image: BorrowedFd<'_>) -> io::Result<()> {
    let config = LoopConfig {
        image: image.as_raw_fd().unsigned_abs(),
        block_bytes: 0,
        before_flags: [0; 5],
        types_and_key_length: [0; 3],
        flags: LO_FLAGS_AUTOCLEAR,
        names_and_key: [0; 22],
        reserved: [0; 8],
    };
    // SAFETY: the structure is a live local with the layout that this request reads.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &raw const config) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::fd::AsFd;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn twenty_four_threads_get_a_device_each_at_once() {
        if !nix::unistd::geteuid().is_root() || !std::path::Path::new(CONTROL).exists() {
            eprintln!("SKIP: not root, or no loop devices");
            return;
        }
        const THREADS: usize = 24;
        // One round may go well by chance.
        for _ in 0..20 {
            let (begin, end) = (Barrier::new(THREADS), Barrier::new(THREADS));
            let take = || {
                let image = tempfile::tempfile_in("/var/tmp").unwrap();
                image.set_len(1 << 20).unwrap();
                begin.wait();
                let device = LoopDevice::over(image.as_fd());
                // Every thread keeps its device until all have tried.
                end.wait();
                device.map(|device| device.path)
            };
            let paths = thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(take)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
            });
            let paths: io::Result<BTreeSet<String>> = paths.into_iter().collect();
            assert_eq!(paths.unwrap().len(), THREADS);
        }
    }

    #[test]
    fn the_structure_has_the_kernels_layout() {
        // Five words of 8 bytes, three of 4, the flags, 64 + 64 + 32 bytes of names and key, two words.
        assert_eq!(std::mem::offset_of!(LoopConfig, flags), 8 + 5 * 8 + 3 * 4);
        assert_eq!(size_of::<LoopConfig>(), 8 + 232 + 64);
    }
}
