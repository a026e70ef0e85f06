//! The system-call filter of a box: from a profile's ordered layers to one BPF program.
//!
//! `rules` is what a profile file says, `lint` refuses the known traps in it, `compile` turns it
//! into the program the kernel runs, `interpret` runs that program without a kernel, and `oracle` is
//! what tests hold it to.
//!
//! How a call is decided:
//! 1. A call of a foreign architecture kills the process; an x32 call fails with `ENOSYS`.
//! 2. Layers are asked in file order, a layer's entries in file order. The first entry that names
//!    the call and whose conditions all hold decides.
//! 3. When no entry decides, the layers of the profile it `extends` are asked in the same way,
//!    unless the profile says `otherwise` for itself.
//! 4. `otherwise.known` answers every call left over that [`syscalls`] names, and
//!    `otherwise.unknown` every number it does not: calls newer than this program.

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
