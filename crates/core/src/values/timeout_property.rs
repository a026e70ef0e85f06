//! Property of the duration parsers: they agree with a reference parser that shares no code.

use std::time::Duration;

use crate::values::duration::{parse_duration, parse_timeout};

/// One nanosecond more than a `Duration` holds.
const NANOS_MAX: u128 = 1_000_000_000 << 64;

/// Checks both grammars on the same text.
pub fn check(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let timeout = parse_timeout(text).ok();
    assert_eq!(timeout, whole_millis(text).map(Duration::from_millis), "{text:?}");
    if let Some(timeout) = timeout {
        let written = format!("{}ms", timeout.as_millis());
        assert_eq!(parse_timeout(&written), Ok(timeout), "{text:?} became {written:?}");
    }

    let figure = parse_duration(text).ok();
    match (figure, exact_nanos(text)) {
        (Some(figure), Some(exact)) => {
            let apart = figure.as_nanos().abs_diff(exact);
            assert!(apart <= rounding(exact), "{text:?}: {figure:?} is {apart} ns off");
        }
        (None, Some(exact)) => {
            assert!(exact + rounding(exact) >= NANOS_MAX, "{text:?} was refused");
        }
        (figure, None) => assert_eq!(figure, None, "{text:?}"),
    }
    // A text that is valid in a request means the same as an option.
    if let Some(timeout) = timeout {
        let apart = figure.map(|figure| figure.as_nanos().abs_diff(timeout.as_nanos()));
        let same = apart.is_some_and(|apart| apart <= rounding(timeout.as_nanos()));
        assert!(same, "{text:?} is {timeout:?} in a request and {figure:?} in an option");
    }
}

/// The allowed error in nanoseconds: options are computed in double precision.
fn rounding(nanos: u128) -> u128 {
    1 + (nanos >> 50)
}

/// The grammar of requests, digit by digit in 128 bits.
fn whole_millis(text: &str) -> Option<u64> {
    let (digits, factor) = match text.as_bytes() {
        [digits @ .., b'm', b's'] => (digits, 1),
        [digits @ .., b's'] => (digits, 1_000),
        [digits @ .., b'm'] => (digits, 60_000),
        _ => return None,
    };
    u64::try_from(u128::from(u64::try_from(decimal(digits)?).ok()?) * factor).ok()
}

/// The grammar of options in nanoseconds, rounded down; saturates.
fn exact_nanos(text: &str) -> Option<u128> {
    let (number, unit_nanos): (_, u128) = match text.as_bytes() {
        [number @ .., b'm', b's'] => (number, 1_000_000),
        [number @ .., b's'] => (number, 1_000_000_000),
        [number @ .., b'm'] => (number, 60_000_000_000),
        [number @ .., b'h'] => (number, 3_600_000_000_000),
        _ => return None,
    };
    let point = number.iter().position(|byte| *byte == b'.').unwrap_or(number.len());
    let (whole, fraction) = number.split_at(point);
    let whole = decimal(whole)?.saturating_mul(unit_nanos);
    let part = match fraction {
        [] => 0,
        [_, digits @ ..] => {
            decimal(digits)?;
            // Further digits are less than a nanosecond in any unit.
            let digits = digits.get(..20).unwrap_or(digits);
            let scale = digits.iter().fold(1, |scale: u128, _| scale * 10);
            decimal(digits)? * unit_nanos / scale
        }
    };
    Some(whole.saturating_add(part).min(u128::MAX >> 1))
}

/// Parses one or more ASCII digits; saturates.
fn decimal(digits: &[u8]) -> Option<u128> {
    let mut value = 0_u128;
    for byte in digits {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit <= 9)?;
        value = value.saturating_mul(10).saturating_add(u128::from(digit));
    }
    (!digits.is_empty()).then_some(value)
}

#[cfg(test)]
mod tests {
    use cofferdam_fixtures::kept_inputs;

    #[test]
    fn every_kept_input_holds() {
        kept_inputs::replay("timeout", super::check);
    }
}
