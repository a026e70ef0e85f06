//! Limits the freed memory that the C library keeps.
//!
//! By default the allocator has eight heaps per CPU, one for each thread that starts while others
//! are busy, and raises the size above which freed memory returns to the kernel at once. A service
//! with many short threads then keeps tens or hundreds of megabytes that it does not use.

use crate::sys;

/// One heap for all threads: the allocator returns the free memory at the end of this heap only. A
/// run spends some thousandths of its time in it, so threads hardly wait for each other.
const HEAPS_MAX: i32 = 1;
/// Blocks of at least this many bytes get their own mapping, which ends when they are freed. The
/// buffers of ordinary responses are smaller: the kernel clears the pages of each new mapping.
const MAPPED_FROM_BYTES: i32 = 16 << 20;
/// The free memory that the heap may keep at its end, in bytes. After a burst,
/// [`return_free_pages`] returns that too.
const FREE_END_BYTES_MAX: i32 = 64 << 20;

/// Limits the memory that the allocator keeps. Call it while the process has one thread.
pub fn bound_heaps() {
    sys::bound_heaps(HEAPS_MAX, MAPPED_FROM_BYTES, FREE_END_BYTES_MAX);
}

/// Returns all free whole pages to the kernel. Takes some milliseconds for a large heap.
pub fn return_free_pages() {
    sys::trim_heap();
}
