//! Byte counts in options and configuration: `512MiB`, `64KiB`, `1048576`.

/// A text that is not a byte count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("want a byte count, as 1048576, 64KiB, 512MiB or 1.5GiB")]
pub struct BadByteCount;

/// Parses a byte count: a decimal number and an optional unit, one of `B`, `KiB`, `MiB`, `GiB`,
/// `TiB` (short: `K`, `M`, `G`, `T`), `kB`, `MB`, `GB`. Only a number with a unit may have a
/// fraction, of at most nine digits; the result is rounded down.
///
/// # Errors
/// Any other text, or more than 2^64 - 1 bytes.
pub fn parse_bytes(text: &str) -> Result<u64, BadByteCount> {
    let number_bytes = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, unit) = text.split_at(number_bytes);
    let unit_bytes: u64 = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return Err(BadByteCount),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || (number.contains('.') && (fraction.is_empty() || unit_bytes == 1)) {
        return Err(BadByteCount);
    }
    let whole: u64 = whole.parse().map_err(|_| BadByteCount)?;
    let whole = whole.checked_mul(unit_bytes).ok_or(BadByteCount)?;
    whole.checked_add(fraction_of(fraction, unit_bytes)?).ok_or(BadByteCount)
}

/// `digits` as a decimal fraction of `unit_bytes`, rounded down.
fn fraction_of(digits: &str, unit_bytes: u64) -> Result<u64, BadByteCount> {
    if digits.is_empty() {
        return Ok(0);
    }
    if digits.len() > 9 {
        return Err(BadByteCount);
    }
    let numerator: u64 = digits.parse().map_err(|_| BadByteCount)?;
    let denominator = digits.bytes().fold(1_u128, |product, _| product * 10);
    u64::try_from(u128::from(numerator) * u128::from(unit_bytes) / denominator)
        .map_err(|_| BadByteCount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_unless_written_decimal() {
        let table = [
            ("0", 0),
            ("1048576", 1_048_576),
            ("64KiB", 65_536),
            ("64K", 65_536),
            ("512MiB", 536_870_912),
            ("1.5GiB", 1_610_612_736),
            ("0.5K", 512),
            ("2MB", 2_000_000),
            ("7B", 7),
        ];
        for (text, bytes) in table {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn malformed_counts_are_refused() {
        for text in [
            "",
            "MiB",
            "1.5",
            "1.",
            ".5K",
            "-1",
            "+1",
            " 1",
            "1 K",
            "1X",
            "1.2.3K",
            "99999999999T",
            "0x10",
        ] {
            assert_eq!(parse_bytes(text), Err(BadByteCount), "{text:?}");
        }
    }
}
