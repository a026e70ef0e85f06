//! Timestamps in RFC 3339 format.

use std::time::{SystemTime, UNIX_EPOCH};

/// Formats `time` in UTC with milliseconds: `2026-02-28T23:59:59.007Z`. A time before 1970 becomes
/// the start of 1970.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_millis(time.max(UNIX_EPOCH)).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_has_milliseconds_and_an_unset_clock_gives_1970() {
        let leap = UNIX_EPOCH + Duration::from_millis(1_709_164_800_007);
        assert_eq!(rfc3339(leap), "2024-02-29T00:00:00.007Z");
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(1)), "1970-01-01T00:00:00.000Z");
    }
}
