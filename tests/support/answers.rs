//! The table of what the shipped profiles answer: `tests/sandbox/seccomp/answers.txt`, read for
//! the tests with the interpreter and for those with a kernel.

/// The profiles of the table, in the order of its columns.
pub const PROFILES: [&str; 3] = ["default", "strict-native", "network"];

/// One row: calls that each profile answers alike.
#[derive(Debug, Clone)]
pub struct Row {
    /// Its line in the file, from 1.
    pub line: usize,
    pub call: String,
    /// Its number on x86_64 and on aarch64.
    pub numbers: [Option<u32>; 2],
    /// Every combination of arguments meant.
    pub args: Vec<[u64; 6]>,
    pub how: How,
    /// `allow` or the name of an error, by profile.
    pub answers: [String; 3],
}

/// What there is to know about making the calls of a row.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct How {
    /// The kernel answers as the profile does.
    pub same: bool,
    /// It may return twice.
    pub forks: bool,
    /// It may wait for a signal.
    pub waits: bool,
    /// It may end the process.
    pub ends: bool,
    /// It is not to be let through.
    pub costly: bool,
    /// The kernel asks no filter.
    pub unfiltered: bool,
}

/// The whole table.
pub fn rows() -> Vec<Row> {
    let text = include_str!("../sandbox/seccomp/answers.txt");
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.starts_with('#'));
    lines.map(|(text, line)| row(text, line)).collect()
}

fn row(text: &str, line: usize) -> Row {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [call, x86_64, aarch64, how, answers @ .., args] = words.as_slice() else {
        panic!("line {line}: {text:?}");
    };
    let number = |word: &str| (word != "-").then(|| word.parse().unwrap());
    let answers: [&str; 3] = answers.try_into().unwrap_or_else(|_| panic!("line {line}: {text:?}"));
    Row {
        line,
        call: (*call).to_owned(),
        numbers: [number(x86_64), number(aarch64)],
        args: combinations(args),
        how: how_of(how),
        answers: answers.map(str::to_owned),
    }
}

fn how_of(words: &str) -> How {
    let mut how = How::default();
    for word in words.split(',').filter(|word| *word != "-") {
        *match word {
            "same" => &mut how.same,
            "forks" => &mut how.forks,
            "waits" => &mut how.waits,
            "ends" => &mut how.ends,
            "costly" => &mut how.costly,
            "unfiltered" => &mut how.unfiltered,
            other => panic!("{other:?} is no way to make a call"),
        } = true;
    }
    how
}

/// Every combination of the arguments that `text` gives alternatives of.
fn combinations(text: &str) -> Vec<[u64; 6]> {
    if text == "*" {
        return vec![[u64::MAX; 6]];
    }
    let mut combinations = vec![[0; 6]];
    for (index, alternatives) in text.split(',').enumerate() {
        let values: Vec<u64> = alternatives.split('|').flat_map(range).collect();
        let with = |args: [u64; 6]| {
            values.iter().map(move |value| {
                let mut args = args;
                args[index] = *value;
                args
            })
        };
        combinations = combinations.into_iter().flat_map(with).collect();
    }
    combinations
}

fn range(text: &str) -> std::ops::RangeInclusive<u64> {
    match text.split_once("..") {
        Some((first, last)) => number(first)..=number(last),
        None => number(text)..=number(text),
    }
}

fn number(text: &str) -> u64 {
    let digits = |prefix| text.strip_prefix(prefix);
    let parsed = match (text, digits("0x"), digits("0o")) {
        ("-1", ..) => Ok(u64::MAX),
        (_, Some(digits), _) => u64::from_str_radix(digits, 16),
        (.., Some(digits)) => u64::from_str_radix(digits, 8),
        _ => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{text:?}: {error}"))
}
