//! Provisioning by the real tools: CPython's venv and pip, and uv, in sandboxes and on the host.

mod commands;
mod network;
mod packages;
mod scene;
