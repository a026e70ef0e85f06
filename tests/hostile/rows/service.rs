//! Group E.

use crate::Row;

pub const ROWS: &[Row] = &[];
