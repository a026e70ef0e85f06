//! Evaluations: an agent works on a repository, hidden tests judge the result.

pub mod bounds;
pub mod cache;
pub mod download;
pub mod patch;
pub mod pipeline;
pub mod repository;
pub mod request;
pub mod result;
pub mod service;
pub mod task;
pub mod trees;
pub mod verdict;
pub mod web_url;
