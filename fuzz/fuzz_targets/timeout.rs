//! See `cofferdam_core::values::timeout_property`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam_core::values::timeout_property::check);
