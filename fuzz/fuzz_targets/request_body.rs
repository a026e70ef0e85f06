//! See `cofferdam::check::request_property`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::check::request_property::check);
