//! Programs that run over a mounted workspace, and orders to programs.

mod control;
mod files;
mod terminal;
mod unprivileged;
