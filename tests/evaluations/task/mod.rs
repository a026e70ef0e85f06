//! `cofferdam task`.

mod archives;
mod check;
mod convert;
