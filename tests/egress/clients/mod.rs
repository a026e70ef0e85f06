//! Programs that reach a host with rules, each in a sandbox of `cofferdam exec`, with no setting of their own: only with
//! the variables and files that every sandbox with rules has. The host is a server of this test, over TLS with an
//! authority of its own.
//!
//! Programs that every machine for these tests has are tried by every run. The others are downloaded by
//! `make test-egress-clients`, which tries all of them.

mod git;
mod host;
mod http;
mod openai;
mod registries;
mod scene;
