//! What the C library keeps of memory that was freed.
//!
//! By default it has eight heaps for each CPU, one for each thread that starts while others are busy,
//! and it raises the size above which freed memory goes back to the kernel at once. A service with
//! many short threads then keeps tens or hundreds of megabytes that it does not use.

use crate::sys;

/// One heap for all threads: the allocator returns the free memory at the end of no other. A run
/// takes some thousandths of its time from it, so threads hardly wait for each other.
const HEAPS_MAX: i32 = 1;
/// Blocks of this size and larger get a mapping of their own, which ends when they are freed, bytes.
/// The buffers of ordinary answers are smaller: the kernel clears the pages of each new mapping.
const MAPPED_FROM_BYTES: i32 = 16 << 20;
/// How much free memory the heap may keep at its end, bytes. After a burst, [`return_free_pages`]
/// returns that too.
const FREE_END_BYTES_MAX: i32 = 64 << 20;

/// Bounds what the allocator keeps. To be called while the process has one thread.
pub fn bound_heaps() {
    sys::bound_heaps(HEAPS_MAX, MAPPED_FROM_BYTES, FREE_END_BYTES_MAX);
}

/// Gives the kernel back whatever whole pages are free. Takes some milliseconds of a large heap.
pub fn return_free_pages() {
    sys::trim_heap();
}
