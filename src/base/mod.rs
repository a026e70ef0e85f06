//! Values that know nothing of processes.

pub mod byte_level;
pub mod bytes;
pub mod cancel;
pub mod counter;
pub mod cpus;
pub mod deadline;
pub mod digest;
pub mod duration;
pub mod glob;
pub mod host_name;
pub mod origin;
pub mod rel_path;
pub mod request_id;
pub mod retained;
pub mod slots;
pub mod utc;
pub mod variable_name;
