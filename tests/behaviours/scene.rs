//! A service with evaluations, and a server of tasks on the loopback.

pub use cofferdam_test_server::evaluations::*;
