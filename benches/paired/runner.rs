//! A client that repeats the same run on one kept connection.

use cofferdam_test_server::client::{Client, post, solution};
use cofferdam_test_server::service::Service;

pub struct Runner {
    client: Client,
    request: Vec<u8>,
}

impl Runner {
    /// A runner of an empty solution.
    pub fn of(service: &Service) -> Self {
        Self::posting(service, "")
    }

    pub fn posting(service: &Service, text: &str) -> Self {
        Self { client: service.connect(), request: post("", solution(text).to_string()) }
    }

    /// Does one run, which must succeed; returns the number of bytes of its answer.
    pub fn run(&mut self) -> usize {
        let answer = self.client.ask(&self.request);
        let ended_well = answer.status == 200 && answer.body.starts_with(r#"{"exit_code":0,"#);
        assert!(ended_well, "{} {:.400}", answer.head, answer.body);
        answer.body.len()
    }
}
