//! The engine of this host: every program in a sandbox.

mod builder;
mod code;
mod sandbox_engine;
mod session;
mod turn;

pub use self::builder::{EngineBuildError, SandboxEngineBuilder};
pub use self::code::SandboxCodeExecutor;
pub use self::sandbox_engine::SandboxEngine;
pub use self::session::SandboxSession;
