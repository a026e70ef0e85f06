pub mod profile;
pub mod seccomp;
