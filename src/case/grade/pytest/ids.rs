//! Ids of tests, as Cases name them and as pytest reports them (pure).

use std::fmt::Write as _;

use super::report::RanTest;

/// The id of a test in a Case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WantedId {
    /// In the form that is compared.
    text: String,
    /// Whether its parameters are cut, so that it stands for all that begin with it.
    is_open: bool,
}

impl WantedId {
    /// Reads an id. Its path may have backslashes or begin with `./`.
    pub(super) fn new(id: &str) -> Self {
        let text = comparable(id);
        let name = text.split_once("::").map_or("", |(_, name)| name);
        let is_open = name.contains('[') && !name.ends_with(']');
        Self { text, is_open }
    }

    /// The file of the test.
    pub(super) fn file(id: &str) -> String {
        path_of(id.split_once("::").map_or(id, |(path, _)| path))
    }

    /// The tests that it means: the one of that id, or if there is none, those that begin with an open one.
    pub(super) fn tests_of<'ran>(&self, tests: &'ran [RanTest]) -> Vec<&'ran RanTest> {
        let find = |fits: &dyn Fn(&str) -> bool| -> Vec<&'ran RanTest> {
            let ids = |test: &RanTest| [comparable(&test.id), comparable(&test.local_id)];
            tests.iter().filter(|test| ids(test).iter().any(|id| fits(id))).collect()
        };
        let same = find(&|id| id == self.text);
        match same.is_empty() && self.is_open {
            true => find(&|id| id.starts_with(&self.text)),
            false => same,
        }
    }
}

/// The id with slashes in its path and, as pytest prints parameters, escapes in its name.
fn comparable(id: &str) -> String {
    let (path, name) = match id.split_once("::") {
        Some((path, name)) => (path, Some(name)),
        None => (id, None),
    };
    let mut text = path_of(path);
    if let Some(name) = name {
        text.push_str("::");
        name.chars().for_each(|character| escape(character, &mut text));
    }
    text
}

fn path_of(path: &str) -> String {
    let path = path.replace('\\', "/");
    path.trim_start_matches("./").to_owned()
}

/// Adds a character as Python escapes it.
fn escape(character: char, text: &mut String) {
    // A String takes all that is written.
    let _ = match u32::from(character) {
        0..=0x7f => write!(text, "{character}"),
        code @ 0x80..=0xff => write!(text, "\\x{code:02x}"),
        code @ 0x100..=0xffff => write!(text, "\\u{code:04x}"),
        code => write!(text, "\\U{code:08x}"),
    };
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::ran;
    use super::*;

    fn found(wanted: &str, collected: &[&str]) -> Vec<String> {
        let ends: Vec<_> = collected.iter().map(|name| (*name, None)).collect();
        let found = ran(&ends);
        let tests = WantedId::new(wanted).tests_of(&found.tests);
        tests.iter().map(|test| test.id.trim_start_matches("t.py::").to_owned()).collect()
    }

    #[test]
    fn an_id_means_the_test_that_has_it() {
        for (wanted, collected, means) in [
            ("t.py::a", &["a", "ab", "a[1]"][..], &["a"][..]),
            ("./t.py::a", &["a"], &["a"]),
            ("t.py::C::a", &["a", "C::a"], &["C::a"]),
            ("t.py::a[b c]", &["a[b c]", "a[b c]d"], &["a[b c]"]),
            ("t.py::a[x::y]", &["a[x::y]"], &["a[x::y]"]),
            ("t.py::a[\u{e9}]", &["a[\\xe9]"], &["a[\\xe9]"]),
            ("t.py::a[\\u20ac]", &["a[\u{20ac}]"], &["a[\u{20ac}]"]),
            ("t.py::\u{1f600}", &["\\U0001f600"], &["\\U0001f600"]),
            ("t.py::a[\\\\]", &["a[\\\\]"], &["a[\\\\]"]),
            ("t.py::a", &["a[1]"], &[]),
            ("u.py::a", &["a"], &[]),
            ("t.py", &["a"], &[]),
        ] {
            assert_eq!(found(wanted, collected), means, "{wanted}");
        }
    }

    #[test]
    fn an_id_with_an_open_bracket_means_all_that_begin_with_it() {
        let all = &["a[1]", "a[1-b c]", "a[10]", "a[2]", "ab[1]"];
        assert_eq!(found("t.py::a[1", all), ["a[1]", "a[1-b c]", "a[10]"]);
        assert_eq!(found("t.py::a[1-b", all), ["a[1-b c]"]);
        assert_eq!(found("t.py::a[1]", all), ["a[1]"]);
        assert_eq!(found("t.py::a[3", all), Vec::<String>::new());
        assert_eq!(found("t.py::a[[", &["a[[]", "a[[b]"]), ["a[[]", "a[[b]"]);
    }

    #[test]
    fn the_file_of_an_id_has_slashes() {
        for (id, file) in [
            ("tests/t.py::C::a[x::y]", "tests/t.py"),
            ("tests\\sub\\t.py::a[\\]", "tests/sub/t.py"),
            ("./t.py::a", "t.py"),
            ("t.py", "t.py"),
        ] {
            assert_eq!(WantedId::file(id), file);
        }
        let mut tests = ran(&[("a", None)]).tests;
        tests[0].local_id = "tests/t.py::a".to_owned();
        assert_eq!(WantedId::new("tests\\t.py::a").tests_of(&tests).len(), 1);
    }
}
