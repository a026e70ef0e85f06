//! Landlock: the access rights that a sandbox's own rules allow, independently of its mounts.

/// The calls' numbers, the same on every architecture.
pub const SYS_CREATE_RULESET: libc::c_long = 444;
/// See [`SYS_CREATE_RULESET`].
pub const SYS_ADD_RULE: libc::c_long = 445;
/// See [`SYS_CREATE_RULESET`].
pub const SYS_RESTRICT_SELF: libc::c_long = 446;
/// With this flag `landlock_create_ruleset` returns the kernel's version of the interface.
pub const CREATE_RULESET_VERSION: libc::c_long = 1;
/// The type of the rules for everything at or below a path.
pub const RULE_PATH_BENEATH: i32 = 1;

/// Version 1 refuses all renames and links between directories, which compilers need.
const ABI_MIN: u32 = 2;
/// The newest version whose rights this file knows.
const ABI_KNOWN: u32 = 7;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const MAKE_CHAR: u64 = 1 << 6;
const MAKE_BLOCK: u64 = 1 << 11;
/// All rights up to `REFER`, the last one of version 2.
const RIGHTS_2: u64 = (1 << 14) - 1;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;
const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
const SCOPE_SIGNAL: u64 = 2;
const LOG_SAME_EXEC_OFF: u32 = 1;
const LOG_SUBDOMAINS_OFF: u32 = 4;

/// The Landlock version in use, and its rights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Landlock {
    abi: u32,
}

impl Landlock {
    /// From the kernel's answer to the query for its version, or the reason why Landlock is missing.
    pub fn from_answer(answer: std::io::Result<u32>) -> Result<Self, String> {
        match answer {
            Ok(abi) if abi >= ABI_MIN => Ok(Self { abi: abi.min(ABI_KNOWN) }),
            Ok(abi) => {
                Err(format!("ABI {abi} refuses renames between directories, Linux 5.19 does not"))
            }
            Err(error) => Err(match error.raw_os_error() {
                Some(libc::ENOSYS) => "the kernel has none".to_owned(),
                Some(libc::EOPNOTSUPP) => "turned off at boot".to_owned(),
                _ => error.to_string(),
            }),
        }
    }

    /// The version in use: the kernel's, or the newest known one.
    pub fn abi(self) -> u32 {
        self.abi
    }

    /// All rights to files: those that no rule allows are denied. The network is not restricted: a
    /// sandbox has only `lo`.
    pub fn handled(self) -> u64 {
        let since = |abi, right| if self.abi >= abi { right } else { 0 };
        RIGHTS_2 | since(3, TRUNCATE) | since(5, IOCTL_DEV)
    }

    /// What cannot leave the sandbox: signals, and connections to abstract sockets.
    pub fn scoped(self) -> u64 {
        if self.abi >= 6 { SCOPE_ABSTRACT_UNIX_SOCKET | SCOPE_SIGNAL } else { 0 }
    }

    /// Flags for `landlock_restrict_self`: denials of a tenant do not fill the host's audit log.
    pub fn restrict_flags(self) -> u32 {
        if self.abi >= 7 { LOG_SAME_EXEC_OFF | LOG_SUBDOMAINS_OFF } else { 0 }
    }

    /// The rights to everything that the sandbox shows.
    pub fn readable(self) -> u64 {
        EXECUTE | READ_FILE | READ_DIR
    }

    /// The rights to a device node. They include reading, for a standard input that is the null
    /// device of the host, to which no path inside leads.
    pub fn device(self) -> u64 {
        (READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV) & self.handled()
    }

    /// The rights to a writable directory: all except creating device nodes. They are the same
    /// everywhere, since otherwise files could not be moved from one directory to another.
    pub fn writable_directory(self) -> u64 {
        self.handled() & !(MAKE_CHAR | MAKE_BLOCK)
    }

    /// The rights to a writable file: rules for files accept no others.
    pub fn writable_file(self) -> u64 {
        (EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV) & self.handled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(abi: u32) -> Landlock {
        Landlock::from_answer(Ok(abi)).unwrap()
    }

    #[test]
    fn rights_match_the_kernels_version_and_are_never_unknown_ones() {
        for (abi, used, handled, scoped, flags) in [
            (2, 2, 0x3fff, 0, 0),
            (3, 3, 0x7fff, 0, 0),
            (4, 4, 0x7fff, 0, 0),
            (5, 5, 0xffff, 0, 0),
            (6, 6, 0xffff, 3, 0),
            (7, 7, 0xffff, 3, 5),
            (99, 7, 0xffff, 3, 5),
        ] {
            let landlock = of(abi);
            let found = (landlock.abi(), landlock.handled(), landlock.scoped());
            assert_eq!(found, (used, handled, scoped), "ABI {abi}");
            assert_eq!(landlock.restrict_flags(), flags, "ABI {abi}");
        }
    }

    #[test]
    fn no_rule_allows_a_right_that_is_not_handled() {
        for landlock in (2..=7).map(of) {
            for given in [
                landlock.readable(),
                landlock.device(),
                landlock.writable_directory(),
                landlock.writable_file(),
            ] {
                assert_eq!(given & !landlock.handled(), 0, "{landlock:?}");
            }
            assert_eq!(landlock.readable() & (WRITE_FILE | TRUNCATE), 0);
        }
    }

    #[test]
    fn a_kernel_without_a_usable_landlock_is_refused_with_the_reason() {
        for (answer, why) in [
            (Err(libc::ENOSYS), "the kernel has none"),
            (Err(libc::EOPNOTSUPP), "turned off at boot"),
            (Err(libc::EPERM), "Operation not permitted (os error 1)"),
            (Ok(1), "ABI 1 refuses renames between directories, Linux 5.19 does not"),
        ] {
            let answer = answer.map_err(std::io::Error::from_raw_os_error);
            assert_eq!(Landlock::from_answer(answer).unwrap_err(), why);
        }
    }
}
