//! What threads share: cancellation, orders to a run and its input, counters, permits, watermarks,
//! request ids, counts to wait on.

pub mod cancel;
pub mod counter;
pub mod in_flight;
pub mod input_queue;
pub mod permits;
pub mod request_id;
pub mod retained;
pub mod run_control;
pub mod watermark;
