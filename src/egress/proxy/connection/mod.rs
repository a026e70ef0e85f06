//! The connections of programs: what they ask for, and the tunnels that they become.

pub mod activity;
pub mod client;
pub mod gate;
pub mod http1;
pub mod rewound;
pub mod target;
pub mod tunnel;
