//! What a program starts with: its file, identity, environment, descriptors and limits.

mod descriptors;
mod environment;
mod identity;
mod inherited;
mod programs;
