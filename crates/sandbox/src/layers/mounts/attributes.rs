//! The system calls for extended attributes, which have no safe wrapper.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use cofferdam_tree::ExtendedAttributes;

/// More than the kernel lets the names, or one value, take.
const ATTRIBUTE_BYTES_MAX: usize = 64 << 10;

/// Attributes by system calls.
#[derive(Debug)]
pub(in crate::layers) struct AttributeCalls;

impl ExtendedAttributes for AttributeCalls {
    fn names(&self, file: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
        let mut names: Vec<u8> = Vec::new();
        loop {
            // SAFETY: the buffer is live and has the length given.
            let result = unsafe {
                libc::flistxattr(file.as_raw_fd(), names.as_mut_ptr().cast(), names.len())
            };
            match length(result) {
                Ok(0) => return Ok(Vec::new()),
                Ok(length) if length <= names.len() => {
                    names.truncate(length);
                    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
                    return Ok(names.filter_map(|name| CString::new(name).ok()).collect());
                }
                // An empty buffer asks for the length.
                Ok(_) => names.resize(ATTRIBUTE_BYTES_MAX, 0),
                Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                    return Ok(Vec::new());
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn value(&self, file: BorrowedFd<'_>, name: &CStr) -> io::Result<Option<Vec<u8>>> {
        let mut value: Vec<u8> = Vec::new();
        loop {
            // SAFETY: the name is NUL-terminated; the buffer is live and has the length given.
            let result = unsafe {
                let buffer = value.as_mut_ptr().cast();
                libc::fgetxattr(file.as_raw_fd(), name.as_ptr(), buffer, value.len())
            };
            match length(result) {
                Ok(length) if length <= value.len() => {
                    value.truncate(length);
                    return Ok(Some(value));
                }
                // An empty buffer asks for the length.
                Ok(_) => value.resize(ATTRIBUTE_BYTES_MAX, 0),
                Err(error) => {
                    let absent = [libc::ENODATA, libc::EOPNOTSUPP];
                    let is_absent =
                        error.raw_os_error().is_some_and(|errno| absent.contains(&errno));
                    return if is_absent { Ok(None) } else { Err(error) };
                }
            }
        }
    }

    fn set(&self, file: BorrowedFd<'_>, name: &CStr, value: &[u8]) -> io::Result<()> {
        // SAFETY: the name is NUL-terminated; the value is live and has the length given.
        let result = unsafe {
            let start = value.as_ptr().cast();
            libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), start, value.len(), 0)
        };
        length(result as isize).map(drop)
    }

    fn remove(&self, file: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
        // SAFETY: the name is NUL-terminated.
        let result = unsafe { libc::fremovexattr(file.as_raw_fd(), name.as_ptr()) };
        length(result as isize).map(drop)
    }
}

fn length(result: isize) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}
