//! Who may use the service: hosts, origins and tokens.

mod hosts;
mod origins;
mod tokens;
