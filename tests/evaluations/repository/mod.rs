//! The first phases: the repository at its exact commit, and what is installed for it.

mod caches;
mod commits;
mod git_server;
mod hostile;
mod installed;
mod scene;
