//! CPU counts in options and configuration: `2`, `1.5`, `0.25`.

/// A text that is not a number of CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("want a number of CPUs above 0, as 2 or 1.5, with three decimals at most")]
pub struct BadCpus;

/// Parses a number of CPUs into thousandths: `1.5` becomes 1500.
///
/// # Errors
/// Zero, a sign, more than three decimals, or any other text.
pub fn parse_cpus_milli(text: &str) -> Result<u64, BadCpus> {
    let (whole, fraction) = match text.split_once('.') {
        Some((_, fraction)) if !matches!(fraction.len(), 1..=3) => return Err(BadCpus),
        Some(parts) => parts,
        None => (text, ""),
    };
    let digits = format!("{whole}{fraction:0<3}");
    if whole.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(BadCpus);
    }
    digits.parse().ok().filter(|milli| *milli > 0).ok_or(BadCpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_thousandths() {
        for (text, milli) in [("1", 1_000), ("1.5", 1_500), ("0.25", 250), ("0.001", 1)] {
            assert_eq!(parse_cpus_milli(text), Ok(milli), "{text}");
        }
        for text in
            ["", ".", ".5", "1.", "0", "0.000", "1.0001", "-1", "+1", "1e3", "99999999999999999"]
        {
            assert_eq!(parse_cpus_milli(text), Err(BadCpus), "{text:?}");
        }
    }
}
