//! See `cofferdam_seccomp::profile_property`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam_seccomp::profile_property::check);
