//! The command line of pytest that a Case gives (pure).

/// The words that start pytest.
const PYTEST_WORDS: [&str; 3] = ["python3", "-m", "pytest"];

/// A command line that ends in `python3 -m pytest` and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PytestPrefix {
    /// What comes before, for a shell.
    pub(super) head: String,
    /// The options, for a shell.
    pub(super) options: String,
}

impl PytestPrefix {
    /// Splits `line` at its last `python3 -m pytest`, if it has one.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let words = words(line);
        let at = words
            .windows(PYTEST_WORDS.len())
            .rposition(|three| three.iter().map(|(_, word)| *word).eq(PYTEST_WORDS))?;
        let (start, _) = words.get(at)?;
        let (last, word) = words.get(at + PYTEST_WORDS.len() - 1)?;
        let head = line.get(..*start)?.trim().to_owned();
        let options = line.get(last + word.len()..)?.trim().to_owned();
        Some(Self { head, options })
    }
}

/// The words of `line`, each with the place where it begins.
fn words(line: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut rest = line;
    while let Some(start) = rest.find(|c: char| !c.is_whitespace()) {
        let from_start = rest.get(start..).unwrap_or_default();
        let length = from_start.find(char::is_whitespace).unwrap_or(from_start.len());
        let (word, after) = from_start.split_at(length);
        words.push((line.len() - from_start.len(), word));
        rest = after;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_split_at_its_last_pytest() {
        for (line, parts) in [
            ("python3 -m pytest", Some(("", ""))),
            (
                "  python3  -m\tpytest -q  -p no:cacheprovider ",
                Some(("", "-q  -p no:cacheprovider")),
            ),
            ("env A=1 python3 -m pytest -k 'a  b'", Some(("env A=1", "-k 'a  b'"))),
            ("cd 'x  y' && A=1 python3 -m pytest", Some(("cd 'x  y' && A=1", ""))),
            ("python3 -m pytest a && python3 -m pytest -x", Some(("python3 -m pytest a &&", "-x"))),
            ("\u{e9} python3 -m pytest -q", Some(("\u{e9}", "-q"))),
            ("pytest -q", None),
            ("python3 -mpytest", None),
            ("python3.11 -m pytest", None),
            ("", None),
        ] {
            let wanted = parts.map(|(head, options)| PytestPrefix {
                head: head.to_owned(),
                options: options.to_owned(),
            });
            assert_eq!(PytestPrefix::parse(line), wanted, "{line:?}");
        }
    }
}
