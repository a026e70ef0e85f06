//! See `cofferdam::check::lang::makefile_property`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam::check::lang::makefile_property::check);
