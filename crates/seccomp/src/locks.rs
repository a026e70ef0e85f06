//! The filter for file locks and sockets, which every sandbox has in addition to its profile's filter.
//!
//! The kernel neither limits nor accounts for file locks, and closing a file walks all its locks. A
//! filter cannot count, so this one reports the calls to the supervisor, which counts them. It applies
//! to calls that the profile's filter allows ([`Filter::then`]): no profile can weaken it, and a call
//! that a profile refuses is never reported.
//!
//! It also reports calls that make sockets other than Unix sockets. A network namespace without such
//! a call is unchanged, so another sandbox can use it.

use nix::errno::Errno;
use nix::libc;

use super::compile::{CompileError, Policy, compile};
use super::filter::Filter;
use super::rules::{Action, Condition, Otherwise, RuleEntry, RuleLayer, Width};
use super::syscalls::Arch;

/// What happens to calls that may take a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockCalls {
    /// The call is reported to the supervisor.
    Watched,
    /// The call fails with `ENOLCK`.
    Refused,
}

/// Compiles the filter for `arch`.
///
/// # Errors
/// The program is too long for the kernel, which does not happen for these rules.
pub fn filter(calls: LockCalls, arch: Arch) -> Result<Filter, CompileError> {
    compile("locks", &policy(calls), arch)
}

fn policy(calls: LockCalls) -> Policy {
    let action = match calls {
        LockCalls::Watched => Action::Notify,
        LockCalls::Refused => Action::Errno(Errno::ENOLCK),
    };
    // A lock of an open file description becomes invisible when the last descriptor closes, and
    // almost no program uses one. EINVAL is the answer of kernels before 3.15.
    let of_descriptions = [libc::F_OFD_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW];
    // A thread with its own descriptor table would hold locks that its process's table does not
    // show. No C library or runtime makes such a thread.
    let (thread, files) = (libc::CLONE_THREAD, libc::CLONE_FILES);
    let own_table = Condition {
        arg: 0,
        width: Width::Bits64,
        mask: word(thread | files),
        values: vec![word(thread)],
    };
    let mut entries = vec![
        entry("flock", action, None),
        entry("fcntl", action, Some(command(&[libc::F_SETLK, libc::F_SETLKW]))),
        entry("fcntl", Action::Errno(Errno::EINVAL), Some(command(&of_descriptions))),
        entry("clone", Action::Errno(Errno::EINVAL), Some(own_table)),
    ];
    if calls == LockCalls::Watched {
        for call in ["socket", "socketpair"] {
            entries.push(entry(call, Action::Allow, Some(int(0, &[libc::AF_UNIX]))));
            entries.push(entry(call, action, None));
        }
        // In case a profile allows it: io_uring makes sockets without a system call for each.
        entries.push(entry("io_uring_setup", action, None));
    }
    let reason = String::from("The profile's filter decides.");
    Policy {
        layers: vec![RuleLayer { name: "locks".to_owned(), unless: None, entries }],
        otherwise: Otherwise { known: Action::Allow, unknown: Action::Allow, reason },
    }
}

fn entry(call: &str, action: Action, when: Option<Condition>) -> RuleEntry {
    RuleEntry {
        syscalls: vec![call.to_owned()],
        optional: Vec::new(),
        action,
        when: when.into_iter().collect(),
        reason: String::new(),
    }
}

fn command(values: &[i32]) -> Condition {
    int(1, values)
}

/// A condition on an `int` argument, of which the kernel reads 32 bits.
fn int(arg: u8, values: &[i32]) -> Condition {
    Condition {
        arg,
        width: Width::Bits32,
        mask: u64::from(u32::MAX),
        values: values.iter().copied().map(word).collect(),
    }
}

fn word(bits: i32) -> u64 {
    u64::from(bits.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interpret::{SeccompData, decide};

    fn answer(calls: LockCalls, arch: Arch, call: &str, args: [u64; 6]) -> Action {
        let filter = compile("locks", &policy(calls), arch).unwrap();
        let number = arch.number(call).unwrap();
        let data = SeccompData { number, arch: arch.audit(), instruction_pointer: 0, args };
        decide(&filter, &data).unwrap()
    }

    #[test]
    fn calls_that_take_locks_are_watched_or_refused_and_no_others() {
        const HIGH: u64 = 1 << 40;
        let refused = Action::Errno(Errno::EINVAL);
        for (calls, locked) in [
            (LockCalls::Watched, Action::Notify),
            (LockCalls::Refused, Action::Errno(Errno::ENOLCK)),
        ] {
            for arch in Arch::ALL {
                let fcntl = |command| answer(calls, arch, "fcntl", [3, command, 0, 0, 0, 0]);
                assert_eq!(answer(calls, arch, "flock", [0; 6]), locked);
                for command in [6, 7, HIGH | 6, HIGH | 7] {
                    assert_eq!(fcntl(command), locked, "{command:#x}");
                }
                for command in [36, 37, 38, HIGH | 37] {
                    assert_eq!(fcntl(command), refused, "{command:#x}");
                }
                for command in [0, 1, 2, 3, 4, 5, 8, 1030] {
                    assert_eq!(fcntl(command), Action::Allow, "{command:#x}");
                }
                let clone = |flags| answer(calls, arch, "clone", [flags, 0, 0, 0, 0, 0]);
                // pthread_create, fork, vfork; a thread without the table of its process.
                for flags in [0x003d_0f00, 0x0120_0011, 0x4111] {
                    assert_eq!(clone(flags), Action::Allow, "{flags:#x}");
                }
                assert_eq!(clone(0x003d_0f00 & !0x400), refused);
                assert_eq!(answer(calls, arch, "openat", [u64::MAX; 6]), Action::Allow);
                let watched = calls == LockCalls::Watched;
                let made = if watched { Action::Notify } else { Action::Allow };
                for call in ["socket", "socketpair"] {
                    let of = |domain| answer(calls, arch, call, [domain, 0, 0, 0, 0, 0]);
                    assert_eq!((of(1), of(HIGH | 1)), (Action::Allow, Action::Allow), "{call}");
                    for domain in [0, 2, 10, 16, 17, 38, 40, HIGH | 2] {
                        assert_eq!(of(domain), made, "{call} {domain:#x}");
                    }
                }
                assert_eq!(answer(calls, arch, "io_uring_setup", [0; 6]), made);
            }
        }
    }

    #[test]
    fn the_filter_is_small() {
        let filter = filter(LockCalls::Watched, Arch::NATIVE).unwrap();
        assert!(filter.program.len() < 50 && filter.depth() < 26, "{filter:?}");
    }
}
