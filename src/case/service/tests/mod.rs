//! The service over scripted Cells.

mod admission;
mod ended;
mod restart;
mod running;
mod scene;
