//! What the C library keeps of memory that was freed.
//!
//! By default it has eight heaps a CPU, one for each thread that comes while others are busy, and
//! raises the size from which memory goes back to the kernel at once up to 32 MiB. A service of many
//! short threads then keeps tens of megabytes for nothing.

use super::sys;

/// Heaps that all threads share.
const HEAPS_MAX: i32 = 2;
/// Pieces of this size and larger are mapped by themselves and go back when they are freed, bytes.
const MAPPED_FROM_BYTES: i32 = 128 * 1024;
/// How much a heap's free end may hold before it goes back, bytes.
const FREE_END_BYTES_MAX: i32 = 128 * 1024;

/// Bounds what is kept from now on. To be called while the process has one thread.
pub fn bound_heaps() {
    let settings = [
        (sys::HEAPS_MAX, HEAPS_MAX),
        (sys::MAPPED_FROM, MAPPED_FROM_BYTES),
        (sys::FREE_END_MAX, FREE_END_BYTES_MAX),
    ];
    for (setting, value) in settings {
        // Where it is not taken, memory is all it costs.
        let _ = sys::set_heap(setting, value);
    }
}

/// Gives the kernel back whatever whole pages are free. Takes some milliseconds of a large heap.
pub fn return_free_pages() {
    sys::trim_heap();
}
