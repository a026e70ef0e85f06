//! The steps that change ids, capabilities and the user namespace.

use std::ffi::CString;

use crate::plan::encode::{Arg, Encoder, PROC_REGISTER, SCRATCH_REGISTER};
use crate::plan::rootfs::lossy;

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;

/// A step that changes the ids, the capabilities or the user namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdentityStep {
    /// Drop the supplementary groups.
    DropGroups,
    /// Set the real, effective and saved gid.
    SetGid { gid: u32 },
    /// Set the real, effective and saved uid.
    SetUid { uid: u32 },
    /// Set the real and the effective uid, and keep the saved one: processes of this uid may then
    /// neither inspect this one nor change its limits. With exec the saved one becomes the effective
    /// one.
    SetUidButSaved { uid: u32 },
    /// Allow this process to write its own id maps after the uid change.
    MakeDumpable,
    /// Keep other processes of this uid from inspecting this one.
    MakeUndumpable,
    /// Create the last user namespace.
    UnshareUser,
    /// Write to a file below `/proc`.
    WriteProc { file: CString, text: CString },
    /// Remove every capability from the bounding set.
    DropBoundingSet { last_capability: u32 },
    /// Empty the ambient set.
    ClearAmbientSet,
    /// Empty the permitted, effective and inheritable sets.
    ClearCapabilities,
    /// Make exec grant no privileges.
    NoNewPrivileges,
}

impl IdentityStep {
    /// The step's name in an error: the operation and its target.
    pub fn name(&self) -> String {
        match self {
            Self::DropGroups => "setgroups".into(),
            Self::SetGid { .. } => "setresgid".into(),
            Self::SetUid { .. } | Self::SetUidButSaved { .. } => "setresuid".into(),
            Self::MakeDumpable | Self::MakeUndumpable => "set dumpable".into(),
            Self::UnshareUser => "user namespace".into(),
            Self::WriteProc { file, .. } => format!("write /proc/{}", lossy(file)),
            Self::DropBoundingSet { .. } => "drop bounding set".into(),
            Self::ClearAmbientSet => "clear ambient set".into(),
            Self::ClearCapabilities => "capset".into(),
            Self::NoNewPrivileges => "no_new_privs".into(),
        }
    }

    /// Appends the step's system calls.
    pub fn encode(&self, out: &mut Encoder) {
        match self {
            Self::DropGroups => out.call(libc::SYS_setgroups, &[0.into(), 0.into()]),
            Self::SetGid { gid } => {
                out.call(libc::SYS_setresgid, &[gid.into(), gid.into(), gid.into()]);
            }
            Self::SetUid { uid } => {
                out.call(libc::SYS_setresuid, &[uid.into(), uid.into(), uid.into()]);
            }
            Self::SetUidButSaved { uid } => {
                out.call(libc::SYS_setresuid, &[uid.into(), uid.into(), (-1_i32).into()]);
            }
            Self::MakeDumpable => prctl(out, libc::PR_SET_DUMPABLE, 1, 0),
            Self::MakeUndumpable => prctl(out, libc::PR_SET_DUMPABLE, 0, 0),
            Self::UnshareUser => out.call(libc::SYS_unshare, &[libc::CLONE_NEWUSER.into()]),
            Self::WriteProc { file, text } => write_proc(out, file, text),
            Self::DropBoundingSet { last_capability } => {
                for capability in 0..=*last_capability {
                    prctl(out, libc::PR_CAPBSET_DROP, i64::from(capability), 0);
                }
            }
            Self::ClearAmbientSet => {
                prctl(out, libc::PR_CAP_AMBIENT, i64::from(libc::PR_CAP_AMBIENT_CLEAR_ALL), 0);
            }
            Self::ClearCapabilities => {
                let header = out.half_words(&[CAPABILITY_VERSION_3, 0]);
                let sets = out.words(&[0; 3]);
                out.call(libc::SYS_capset, &[header, sets]);
            }
            Self::NoNewPrivileges => prctl(out, libc::PR_SET_NO_NEW_PRIVS, 1, 0),
        }
    }
}

fn write_proc(out: &mut Encoder, file: &CString, text: &CString) {
    let length = text.as_bytes().len();
    let (file, text) = (out.text(file), out.text(text));
    let flags = libc::O_WRONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW;
    out.call_into(
        SCRATCH_REGISTER,
        libc::SYS_openat,
        &[Arg::Register(PROC_REGISTER), file, flags.into()],
    );
    out.call(libc::SYS_write, &[Arg::Register(SCRATCH_REGISTER), text, length.into()]);
}

fn prctl(out: &mut Encoder, option: i32, second: i64, third: i64) {
    out.call(libc::SYS_prctl, &[option.into(), second.into(), third.into(), 0.into(), 0.into()]);
}
