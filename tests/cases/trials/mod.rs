//! Trials by the built binary: a Cell from its source to its grade, by each executor.

mod ends;
mod grades;
mod jobs;
mod kills;
mod many;
mod own;
mod prove;
mod scene;
mod secrets;
mod special_files;
mod worktrees;
