//! What an operator sees: settings, hosts that lack a feature, logs, shutting down.

mod configuration;
mod degraded;
mod drain;
mod drain_under_load;
mod logs;
mod unread_log;
