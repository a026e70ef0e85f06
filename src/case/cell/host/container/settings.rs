//! What a container Cell is made of.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use crate::case::cell::host::caches::ContainerCaches;
use crate::case::cell::plan::CellSettings;
use crate::case::file::CaseContainer;
use crate::egress::EgressGrant;

/// What a container Cell is made of.
#[derive(Debug, Clone)]
pub struct ContainerSettings {
    /// The Cell.
    pub cell: CellSettings,
    /// The image, what root does to it once, and the engine.
    pub container: CaseContainer,
    /// What `container.setup` may reach.
    pub setup_egress: Option<EgressGrant>,
    /// Whether the container that has ended stays until the Cell is stopped, so that [`super::ContainerCell::keep`] can
    /// keep it.
    pub stays: bool,
    /// What this host adds.
    pub host: ContainerHost,
}

/// What the host adds to a container Cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerHost {
    /// The directory in which the Cell gets its own.
    pub base: PathBuf,
    /// The program `cofferdam`, linked statically, which runs the commands in the container.
    pub helper: PathBuf,
    /// Where the engine's program is looked for, as in `PATH`.
    pub search_path: OsString,
    /// Variables of ours that commands have besides those of the image.
    pub variables: BTreeMap<String, String>,
    /// Where `container.caches` are kept between Cells. Without it they have no effect.
    pub caches: Option<ContainerCaches>,
}
