//! Names of directories of Cells.

use std::collections::HashSet;

use cofferdam_core::values::digest::sha256_of;

/// The longest name that file systems take, bytes.
const FILE_NAME_BYTES_MAX: usize = 255;
/// Room for `__t` and the number of a trial, bytes.
const TRIAL_BYTES_MAX: usize = 23;
/// Hexadecimal digits that tell names apart which would be equal.
const MARK_BYTES: usize = 12;

/// The names that a run has given so far.
#[derive(Debug, Default)]
pub(super) struct CellNames(HashSet<String>);

/// The name of the Cells of one harness and model, without the trial. Names with different stems differ: the last
/// `__t` and the digits behind it are the trial's.
#[derive(Debug)]
pub(super) struct CellStem(String);

impl CellNames {
    /// `<case>__<harness>__<model>`, or the same with a mark if it is too long or there already.
    pub(super) fn stem(&mut self, case: &str, harness: &str, model: &str) -> CellStem {
        let plain = plain(&format!("{case}__{harness}__{model}"));
        let is_short = plain.len() + TRIAL_BYTES_MAX <= FILE_NAME_BYTES_MAX;
        if is_short && self.0.insert(plain.clone()) {
            return CellStem(plain);
        }
        let digest = sha256_of(format!("{case}\0{harness}\0{model}").as_bytes());
        let mark = digest.get(..MARK_BYTES).unwrap_or(&digest);
        let marked = (0_u64..).map(|number| match number {
            0 => with_end(&plain, &format!("-{mark}")),
            number => with_end(&plain, &format!("-{mark}-{number}")),
        });
        // The set is finite, so that one of the names is free.
        let free = marked.into_iter().find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.insert(free.clone());
        CellStem(free)
    }
}

impl CellStem {
    /// The name of the Cell of this trial.
    pub(super) fn of_trial(&self, trial: u64) -> String {
        format!("{}__t{trial}", self.0)
    }
}

/// `text` with `end`, cut to leave room for both and the trial.
fn with_end(text: &str, end: &str) -> String {
    let room = FILE_NAME_BYTES_MAX.saturating_sub(TRIAL_BYTES_MAX + end.len());
    let cut = text.floor_char_boundary(room);
    format!("{}{end}", text.get(..cut).unwrap_or_default())
}

/// `text` as a part of a path: `/` is `-`, spaces and control characters are `_`, no dot is first.
fn plain(text: &str) -> String {
    let plain = |character: char| match character {
        '/' => '-',
        ' ' => '_',
        other if other.is_control() => '_',
        other => other,
    };
    let name: String = text.chars().map(plain).collect();
    match name.strip_prefix('.') {
        Some(rest) => format!("_{rest}"),
        None => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_keeps_the_start_of_a_long_name_and_characters_whole() {
        let mut names = CellNames::default();
        let name = names.stem("c", "h", &"é".repeat(300)).of_trial(10_000);
        assert!(name.starts_with("c__h__é") && name.len() <= FILE_NAME_BYTES_MAX, "{name}");
        let other = names.stem("c", "h", &format!("{}x", "é".repeat(300))).of_trial(10_000);
        assert_ne!(name, other);
    }

    #[test]
    fn only_the_later_of_two_equal_names_has_a_mark() {
        let mut names = CellNames::default();
        assert_eq!(names.stem("c", "h", "a/b").of_trial(1), "c__h__a-b__t1");
        let second = names.stem("c", "h", "a-b").of_trial(1);
        assert!(second.starts_with("c__h__a-b-") && second.ends_with("__t1"), "{second}");
        assert_eq!(names.stem(".c", "h", "m").of_trial(1), "_c__h__m__t1");
    }
}
