//! The steps of an evaluation, each one method of [`Evaluating`].

mod agent;
mod base;
mod evaluating;
mod open;
mod verify;

pub use evaluating::Evaluating;
