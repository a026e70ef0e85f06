//! What the C library keeps of memory that was freed.
//!
//! By default it has eight heaps a CPU, one for each thread that comes while others are busy. A
//! service of many short threads then keeps tens of megabytes for nothing.

use std::thread::available_parallelism;

use super::sys;

/// Heaps for each CPU: with one, threads wait for each other.
const HEAPS_PER_CPU: usize = 2;

/// Bounds how many heaps there are. To be called while the process has one thread.
pub fn bound_heaps() {
    let cpus = available_parallelism().map_or(1, usize::from);
    sys::bound_heaps(i32::try_from(cpus.saturating_mul(HEAPS_PER_CPU)).unwrap_or(i32::MAX));
}

/// Gives the kernel back whatever whole pages are free. Takes some milliseconds of a large heap.
pub fn return_free_pages() {
    sys::trim_heap();
}
