//! Runs: every Cell of a Case, its result on disk, and the reports over all of them.
//!
//! ```text
//! <store>/cases/<run_id>/   manifest.json case.yaml results.jsonl junit.xml report.html lock
//!   cells/<cell>/           result.json spec.json output.txt agent.patch metrics.json score.json
//!                           trace.jsonl commands.jsonl
//! ```
//!
//! `result.json` is the truth about a Cell and is replaced atomically; everything else of a run is made from it again.
//! One process at a time works on a run, the one that holds `lock`. A process that is killed leaves Cells that are
//! `running`: without a holder of the lock they are pending.

pub mod plan;
pub mod record;
pub mod report;
pub mod result;
pub mod schedule;
pub mod store;
pub mod summary;
#[cfg(test)]
mod tests;

pub use plan::{CellFilter, PlanError, PlannedCell, plan_cells};
pub use record::{
    AgentEntry, CellEnd, CellFault, CellStatus, CellTiming, CellWarning, ExecutorEntry,
    ProvisionEntry, ScoreEntry,
};
pub use report::write_reports;
pub use result::CellResult;
pub use schedule::{CellRunner, RunObserver, RunWork, run_pending};
pub use store::{
    CaseRunError, CellFile, CellFilesDir, CellLog, FoundRun, LockedRun, NewRun, RunDigests,
    RunFolder, RunManifest, RunOptions, UnfinishedRun, case_file, find_run,
};
pub use summary::{RunAnswer, RunSummary};
