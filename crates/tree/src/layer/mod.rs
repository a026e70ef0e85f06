//! Layers of overlay file systems as plain trees: applied to another layer, digested as seen.
//!
//! A layer holds what it adds to the layers below, a *whiteout* for each entry that it removes, and an
//! *opaque* mark on each directory of which nothing shows that lies below. Overlayfs defines both.

pub(crate) mod apply;
pub(crate) mod attributes;
mod beneath;
pub(crate) mod digest;
mod entries;
pub(crate) mod redirects;
