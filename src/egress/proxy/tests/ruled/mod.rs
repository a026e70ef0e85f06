//! Hosts with rules: a program's client, the proxy in between, and hosts with an authority of their own.

mod agreement;
mod clients;
mod exchanges;
mod framing;
mod limits;
mod scene;
mod secrets;
