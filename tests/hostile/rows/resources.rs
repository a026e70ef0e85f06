//! Group C.

use crate::Row;

pub const ROWS: &[Row] = &[];
