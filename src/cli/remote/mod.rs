//! Services that commands are clients of.

pub mod client;
pub mod events;
pub mod fault;
pub mod server_options;
pub mod token_file;
