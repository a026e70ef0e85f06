//! See `cofferdam_tree::files::archive_property`.
#![cfg_attr(fuzzing, no_main)]

cofferdam_fuzz::target!(cofferdam_tree::files::archive_property::check);
