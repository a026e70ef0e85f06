//! What a program sees and reaches, and what it does not.

mod files;
mod landlock;
mod masked;
mod network;
mod processes;
mod tenants;
mod workspace;
