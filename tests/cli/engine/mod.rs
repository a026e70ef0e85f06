//! `cofferdam workspace`.

mod attach;
mod output;
mod recording_server;
mod requests;
mod served;
mod web_socket_server;
