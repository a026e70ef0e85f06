//! A real `cofferdam serve`.

use std::io::{BufRead, BufReader};
use std::process::Child;

use crate::support::Call;

/// A service that is killed when it is dropped.
pub struct RunningServer {
    pub child: Child,
    pub url: String,
}

impl RunningServer {
    /// Starts `call`, which serves on a free port, and waits until it listens.
    pub fn start(call: Call) -> Self {
        let mut child = call.spawn();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "the server ended");
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split(';').next().unwrap().to_owned();
            }
        };
        // Drain the log, so that the service does not block.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, url: format!("http://{address}") }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
