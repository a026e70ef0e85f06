//! See `fuzz/properties/request_body.rs`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::fuzz_properties::request_body::check);
