//! What threads share: cancellation, counters, permits, watermarks, request ids.

pub mod cancel;
pub mod counter;
pub mod permits;
pub mod request_id;
pub mod retained;
pub mod watermark;
