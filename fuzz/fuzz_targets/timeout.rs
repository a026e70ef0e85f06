//! See `fuzz/properties/timeout.rs`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::fuzz_properties::timeout::check);
