//! A time as RFC 3339 writes it.

use std::time::{SystemTime, UNIX_EPOCH};

/// `time` in UTC to the millisecond, as `2026-02-28T23:59:59.007Z`. Before 1970 it is its beginning.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time.max(UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_told_to_the_millisecond_and_a_clock_that_is_not_set_has_one_too() {
        let leap = UNIX_EPOCH + Duration::from_millis(1_709_164_800_007);
        assert_eq!(rfc3339(leap), "2024-02-29T00:00:00.007Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }
}
