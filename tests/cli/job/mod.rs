//! `cofferdam job`.

mod query;
mod run;
mod scripted_server;
mod served;
mod signals;
mod support;
mod unprivileged;
