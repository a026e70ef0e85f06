//! Records of jobs on disk.
//!
//! ```text
//! <store>/runs/<job_id>/   request.json status.json result.json snapshot.json stdout stderr
//!                          artifacts/ cancel
//! <store>/quarantine/      what was no record any more, under its name and the time
//! <store>/owners/          a locked file for every opening of the store that may run jobs
//! <store>/lock             locked by the one service that has the store
//! ```
//!
//! One service at a time has a store ([`RunStore::open`]). Beside it any number of processes may
//! run single jobs ([`RunStore::open_shared`]) and look ([`RunStore::open_existing`]): each job is
//! its owner's, and whatever others do is found on the disk.
//!
//! Everything is its owner's alone (0700, 0600). A job's directory is filled as `runs/.new-…` and
//! then renamed, so that no half of one is ever seen; a job that goes is renamed to `.gone-…`
//! first. Of a JSON file a reader sees one state or the next, also after a loss of power: each is
//! written beside its place and on the disk before it is renamed.
//!
//! What is waited for on the disk: when a job is taken, `request.json`, `status.json` and the name
//! of its directory, so that an accepted job survives a loss of power; when it begins, the new
//! `status.json`; when it ends, outputs that hold anything, `result.json`, `status.json`, and
//! their names once. A death of the process alone needs none of it.
//!
//! A job that is not over names its owner. As long as that one lives nobody else touches the job;
//! once its lock is free, whoever takes it finishes the job as interrupted.

mod error;
mod files;
mod index;
mod query;
mod record;
mod recovery;
mod removal;
mod replay;
mod store;
#[cfg(test)]
mod tests;
mod truncate;

pub use error::StoreError;
pub use record::JobRecord;
pub use recovery::Recovered;
pub use recovery::quarantine::Quarantined;
pub use removal::RemovedJobs;
pub use replay::{request_hash, result_hash, snapshot_hash};
pub use store::{RunStore, StoreSettings};
pub use truncate::truncate;
