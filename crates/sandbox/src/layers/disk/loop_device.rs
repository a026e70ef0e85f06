//! Loop devices, by the requests of `<linux/loop.h>`.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

const LOOP_CONFIGURE: libc::c_ulong = 0x4C0A;
const LOOP_CTL_GET_FREE: libc::c_ulong = 0x4C82;
/// The device is freed when it is closed and unmounted for the last time.
const LO_FLAGS_AUTOCLEAR: u32 = 4;
/// Another process may take the free device first.
const TRIES: u32 = 16;

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
        let control = OpenOptions::new().read(true).write(true).open("/dev/loop-control")?;
        let mut last_error = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..TRIES {
            // SAFETY: the request takes no argument.
            let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
            if number < 0 {
                return Err(io::Error::last_os_error());
            }
            let path = format!("/dev/loop{number}");
            let open = OpenOptions::new().read(true).write(true).open(&path)?;
            match configure(&open, image) {
                Ok(()) => return Ok(Self { path, _open: open }),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) => last_error = error,
                Err(error) => return Err(error),
            }
        }
        Err(last_error)
    }
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
    use super::*;

    #[test]
    fn the_structure_has_the_kernels_layout() {
        // Five words of 8 bytes, three of 4, the flags, 64 + 64 + 32 bytes of names and key, two words.
        assert_eq!(std::mem::offset_of!(LoopConfig, flags), 8 + 5 * 8 + 3 * 4);
        assert_eq!(size_of::<LoopConfig>(), 8 + 232 + 64);
    }
}
