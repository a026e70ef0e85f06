//! See `cofferdam_sandbox::handshake_property`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam_sandbox::handshake_property::check);
