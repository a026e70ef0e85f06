//! Why a request to a service failed.

/// Why a request to a service failed.
#[derive(Debug)]
pub enum ServerFault {
    /// The service refused it.
    Refused {
        /// The status of HTTP.
        status: u16,
        /// The body, which is an error object if this is a service of ours.
        body: Vec<u8>,
        /// The URL of the service.
        server: String,
    },
    /// The service cannot be reached. A retry may help.
    Unreachable(String),
    /// The response is not that of a service of ours.
    Unexpected {
        /// What is wrong.
        words: String,
        /// The URL of the service.
        server: String,
    },
}
