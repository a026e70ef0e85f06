//! See `fuzz/properties/handshake.rs`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::fuzz_properties::handshake::check);
