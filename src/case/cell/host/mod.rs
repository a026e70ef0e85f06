//! Cells whose files are a directory of the host, at the same path for all that run over it: commands run on the host
//! itself, or in a container that shows the directory.

mod caches;
mod container;
mod descendants;
mod directory;
mod ended;
mod local;
mod message;
mod trial;

pub use caches::ContainerCaches;
pub use container::{
    ContainerCell, ContainerHost, ContainerSettings, serve_container, serve_keeper,
};
pub use local::{LocalCell, LocalSettings, serve_step};
pub use trial::{HostCell, HostTrialCell};
