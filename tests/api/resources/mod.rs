//! What runs hold of the host, and that they give it back.

mod descriptors;
mod dying_groups;
mod slots;
mod soak;
mod undying;
