//! Records of jobs on disk.
//!
//! ```text
//! <store>/runs/<job_id>/   request.json status.json result.json snapshot.json stdout stderr
//!                          artifacts/ cancel
//! <store>/quarantine/      damaged records, each with the time appended to its name
//! <store>/owners/          a locked file for every opening of the store that may run jobs
//! <store>/lock             locked by the one service that owns the store
//! ```
//!
//! One service at a time owns a store ([`RunStore::open`]). Any number of other processes may run
//! single jobs ([`RunStore::open_shared`]) and read ([`RunStore::open_existing`]). Each job belongs
//! to its owner, and processes learn of each other's jobs from the disk.
//!
//! Only the owner of the store can access its files (0700, 0600). A job's directory is filled as
//! `runs/.new-…` and then renamed, so that no half of one is ever seen; a removed job is first
//! renamed to `.gone-…`. A reader of a JSON file sees one state or the next, also after a loss of
//! power: each is written to a temporary file and to the disk before it is renamed.
//!
//! The store waits for the disk at these points: when a job is accepted, for `request.json`,
//! `status.json` and the name of its directory, so that an accepted job survives a loss of power;
//! when it begins, for the new `status.json`; when it ends, for non-empty outputs, `result.json`,
//! `status.json`, and once for their names. The death of the process alone loses nothing.
//!
//! A job that has not ended names its owner. While the owner lives no other process touches the job.
//! Once the owner's lock is free, the process that takes it finishes the job as interrupted.

mod error;
mod files;
mod index;
mod query;
mod record;
mod recovery;
mod removal;
mod replay;
mod run_store;
#[cfg(test)]
mod tests;
mod truncate;

pub use error::StoreError;
pub(crate) use error::{ReadFault, errno_of};
pub(crate) use files::directory::StoreDir;
pub(crate) use files::service_lock::ServiceLock;
pub use record::JobRecord;
pub use recovery::Recovered;
pub use recovery::quarantine::Quarantined;
pub use removal::RemovedJobs;
pub use replay::{request_hash, result_hash, snapshot_hash};
pub use run_store::{RunStore, StoreSettings};
pub use truncate::truncate;
