//! Hosts: the grammar of entries, lists of them, and what a request calls a host.

pub mod address;
pub mod allow_list;
pub mod entry;
pub mod literal;
