//! Group B.

use crate::Row;

pub const ROWS: &[Row] = &[];
