//! What threads share: cancellation, orders to a run and its input, counters, permits, watermarks,
//! request ids.

pub mod cancel;
pub mod counter;
pub mod input_queue;
pub mod permits;
pub mod request_id;
pub mod retained;
pub mod run_control;
pub mod watermark;
