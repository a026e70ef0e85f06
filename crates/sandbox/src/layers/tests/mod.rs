//! On the real kernel, as root.

mod generated;
mod hostile;
mod images;
mod lifetime;
mod limits;
mod mounted;
mod owners;
mod sharing;
mod support;
