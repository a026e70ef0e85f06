//! See `fuzz/properties/makefile_resolution.rs`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::fuzz_properties::makefile_resolution::check);
