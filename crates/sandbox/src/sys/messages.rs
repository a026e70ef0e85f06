//! Messages with descriptors over a socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// Sends `bytes` in one message with `descriptors`, without waiting.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    let rights = [ControlMessage::ScmRights(descriptors)];
    let sent = sendmsg::<()>(socket.as_raw_fd(), &[IoSlice::new(bytes)], &rights, flags, None)?;
    if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
}

/// Receives a message that has arrived into `bytes`, and the descriptor that came with it. Returns
/// how many bytes came.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut data = [IoSliceMut::new(bytes)];
    let mut space = cmsg_space!(RawFd);
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
    let message = recvmsg::<()>(socket.as_raw_fd(), &mut data, Some(&mut space), flags)?;
    let mut descriptor = None;
    for content in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = content
            && let Some(fd) = descriptors.first()
        {
            // SAFETY: the kernel created the descriptor for this message, so nothing else owns it,
            // and there is no room for a second one.
            descriptor = Some(unsafe { OwnedFd::from_raw_fd(*fd) });
        }
    }
    Ok((message.bytes, descriptor))
}
