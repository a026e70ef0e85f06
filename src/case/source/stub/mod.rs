//! `setup.stub`: functions of Python files lose their bodies.

mod apply;
mod function;
#[cfg(test)]
mod tests;

pub use apply::{FoundFile, StubFault, apply_stub};
pub use function::{STUB_BYTES_MAX, StubError, stub_function};
