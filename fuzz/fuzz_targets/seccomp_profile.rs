//! See `fuzz/properties/seccomp_profile.rs`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::fuzz_properties::seccomp_profile::check);
