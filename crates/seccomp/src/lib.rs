//! Compiles sandbox profiles to system-call filters: from TOML to one BPF program for seccomp.
//!
//! [`profile::Profile::parse`] parses a profile, lints it and compiles its filter;
//! [`filter::Filter::bytes`] is the program as the kernel takes it. Four profiles are built in
//! ([`profile::BUILTIN`]). The parts can also be used alone:
//! - [`rules`] are the `[seccomp]` section as typed values, [`lint`] finds common mistakes in it.
//! - [`compile`] turns rules into a program, for x86_64 or aarch64 ([`syscalls::Arch`]).
//! - [`interpret`] runs a program without a kernel: it decides a call as the kernel would.
//! - [`locks`] builds the filter that reports file locks to the supervisor.
//!
//! The crate makes no system calls and does not install filters.
//!
//! How a call is decided:
//! 1. A call of a foreign architecture kills the process; an x32 call fails with `ENOSYS`.
//! 2. Layers are checked in file order, and so are the entries of a layer. The first entry that
//!    names the call and whose conditions all hold decides.
//! 3. If no entry decides, the layers of the profile that it `extends` are checked in the same way,
//!    unless the profile has its own `otherwise`.
//! 4. `otherwise.known` decides all remaining calls in the table of [`syscalls`];
//!    `otherwise.unknown` decides all other numbers: calls newer than this program.

#![forbid(unsafe_code)]

mod assemble;
pub mod compile;
pub mod filter;
pub mod interpret;
pub mod lint;
pub mod locks;
#[cfg(any(test, fuzzing))]
pub mod oracle;
pub mod profile;
#[cfg(any(test, fuzzing))]
pub mod profile_property;
pub mod rules;
pub mod syscalls;
