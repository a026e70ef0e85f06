//! Durations in requests, options and configuration: `500ms`, `30s`, `2m`.

use std::time::Duration;

/// A text that is not a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("want a number and a unit, as 500ms, 30s or 2m")]
pub struct BadDuration;

/// Parses a request's `timeout`: decimal digits, then `ms`, `s` or `m`; no sign, space or fraction.
///
/// # Errors
/// Any other text, or more than 2^64 - 1 milliseconds.
pub fn parse_timeout(text: &str) -> Result<Duration, BadDuration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| BadDuration)?;
    let millis_per_unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        _ => return Err(BadDuration),
    };
    number.checked_mul(millis_per_unit).map(Duration::from_millis).ok_or(BadDuration)
}

/// Parses a duration of an option or of the configuration: as [`parse_timeout`], and also a
/// fraction (`1.5s`) or hours (`1h`). A unit is required.
///
/// # Errors
/// Any other text, or a duration out of range.
pub fn parse_duration(text: &str) -> Result<Duration, BadDuration> {
    let number_bytes = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(number_bytes);
    if !number.starts_with(|c: char| c.is_ascii_digit()) || number.ends_with('.') {
        return Err(BadDuration);
    }
    let number: f64 = number.parse().map_err(|_| BadDuration)?;
    let seconds_per_unit = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        _ => return Err(BadDuration),
    };
    Duration::try_from_secs_f64(number * seconds_per_unit).map_err(|_| BadDuration)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::values::timeout_property as timeout;

    #[test]
    fn the_wire_takes_whole_numbers_of_three_units() {
        let table = [("1000ms", 1_000), ("1s", 1_000), ("1m", 60_000), ("0s", 0), ("007s", 7_000)];
        for (text, millis) in table {
            assert_eq!(parse_timeout(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn the_wire_refuses_everything_else() {
        let bad = [
            "",
            "5",
            "s",
            "ms",
            "1h",
            "1.5s",
            "-1s",
            "+5s",
            " 5s",
            "5s ",
            "5 s",
            "1S",
            "1MS",
            "1us",
            "1_0s",
            "0x1s",
            "٣s",
            "18446744073709551615s",
            "18446744073709551616ms",
            "99999999999999999999999999s",
        ];
        for text in bad {
            assert_eq!(parse_timeout(text), Err(BadDuration), "{text:?}");
        }
    }

    #[test]
    fn the_command_line_takes_fractions_and_hours_but_no_bare_number() {
        let table =
            [("1.5s", 1_500), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000), ("0.25s", 250)];
        for (text, millis) in table {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in [
            "",
            "30",
            "0.5",
            ".",
            ".5s",
            "5.",
            "1.2.3s",
            "-1s",
            "1d",
            "s",
            "1e9h",
            "99999999999999999999h",
        ] {
            assert_eq!(parse_duration(text), Err(BadDuration), "{text:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn a_text_parses_as_the_reference_parser_says(
            text in "0{0,3}[0-9]{0,24}(\\.[0-9]{0,24})?(ms|s|m|h|us|)",
        ) {
            timeout::check(text.as_bytes());
        }

        #[test]
        fn whole_milliseconds_written_down_are_read_again(millis in any::<u64>()) {
            let text = format!("{millis}ms");
            prop_assert_eq!(parse_timeout(&text), Ok(Duration::from_millis(millis)));
        }

        #[test]
        fn a_number_that_overflows_its_unit_is_refused_and_never_wraps(
            excess in 0..1_000_u64, unit in prop_oneof![Just(("s", 1_000)), Just(("m", 60_000))],
        ) {
            let (unit, millis) = unit;
            let largest = u64::MAX / millis;
            let within = format!("{}{unit}", largest - excess);
            prop_assert_eq!(
                parse_timeout(&within),
                Ok(Duration::from_millis((largest - excess) * millis))
            );
            let beyond = format!("{}{unit}", largest + 1 + excess);
            prop_assert_eq!(parse_timeout(&beyond), Err(BadDuration));
        }
    }
}
