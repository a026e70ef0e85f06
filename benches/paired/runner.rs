//! A client that posts the same run again and again on one kept connection.

use cofferdam_test_server::client::{Client, post, solution};
use cofferdam_test_server::service::Service;

pub struct Runner {
    client: Client,
    request: Vec<u8>,
}

impl Runner {
    /// Of an empty solution.
    pub fn of(service: &Service) -> Self {
        Self::posting(service, "")
    }

    pub fn posting(service: &Service, text: &str) -> Self {
        Self { client: service.connect(), request: post("", solution(text).to_string()) }
    }

    /// One run, which has to end well; how many bytes its answer has.
    pub fn run(&mut self) -> usize {
        let answer = self.client.ask(&self.request);
        let ended_well = answer.status == 200 && answer.body.starts_with(r#"{"exit_code":0,"#);
        assert!(ended_well, "{} {:.400}", answer.head, answer.body);
        answer.body.len()
    }
}
