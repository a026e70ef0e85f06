//! `GET /v1/workspaces/{id}/sessions/{sid}/attach`: a session's output and input over a WebSocket.

mod handshake;
mod socket;
mod viewer;

pub use handshake::{accept, is_page_allowed};
pub use viewer::{AttachQuery, follow};
