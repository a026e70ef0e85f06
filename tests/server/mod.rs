//! What tests of the whole service share: the real binary started, a raw client, workspaces in
//! the shell, and looks at what the host shows of it.

#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub mod client;
pub mod exposition;
pub mod host;
pub mod service;
pub mod workspace;
