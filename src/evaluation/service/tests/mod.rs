//! Guarantees of the service, over a scripted evaluator.

mod batches;
mod restart;
mod scene;
mod single;
mod summary;
