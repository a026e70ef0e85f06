//! Parses the Prometheus text format 0.0.4 as strictly as these tests need. `make test-metrics`
//! checks the same output with real parsers.

use std::collections::{BTreeMap, BTreeSet};

/// The result of one scrape.
#[derive(Debug, Clone, Default)]
pub struct Exposition {
    /// The type of each family.
    pub types: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

/// One sample.
#[derive(Debug, Clone)]
pub struct Sample {
    /// Includes the suffix `_bucket`, `_sum` or `_count`.
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Exposition {
    /// Parses `text` and panics at a line that is not understood.
    #[track_caller]
    pub fn parse(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line has no newline: {text:?}");
        let mut exposition = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(!help.trim().is_empty(), "no help: {name}");
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                let before = exposition.types.insert(name.to_owned(), kind.to_owned());
                assert_eq!(before, None, "{name} has two types");
            } else {
                let sample = parse_sample(line);
                let family = exposition.family_of(&sample.name);
                assert!(family.is_some(), "a sample without a family: {line}");
                exposition.samples.push(sample);
            }
        }
        exposition
    }

    /// The family of the sample called `name`.
    fn family_of(&self, name: &str) -> Option<&str> {
        let bare = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let is_histogram = |name: &&str| self.types.get(*name).is_some_and(|it| it == "histogram");
        let family = bare.filter(is_histogram).unwrap_or(name);
        self.types.get_key_value(family).map(|(family, _)| family.as_str())
    }

    /// The value of `name` with exactly these labels.
    #[track_caller]
    pub fn get(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels: BTreeMap<String, String> =
            labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mut found =
            self.samples.iter().filter(|sample| sample.name == name && sample.labels == labels);
        let one = found.next().unwrap_or_else(|| panic!("there is no {name} {labels:?}"));
        assert!(found.next().is_none(), "{name} {labels:?} is there twice");
        one.value
    }

    /// All samples of `name`.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| sample.name == name)
    }

    /// The sum of all samples of `name`.
    pub fn sum(&self, name: &str) -> f64 {
        self.all(name).map(|sample| sample.value).sum()
    }

    /// The label names in use in the family, without `le`.
    pub fn label_names(&self, family: &str) -> BTreeSet<String> {
        let of_family =
            self.samples.iter().filter(|sample| self.family_of(&sample.name) == Some(family));
        of_family
            .flat_map(|sample| sample.labels.keys())
            .filter(|name| *name != "le")
            .cloned()
            .collect()
    }

    /// All series.
    pub fn series(&self) -> BTreeSet<(String, BTreeMap<String, String>)> {
        self.samples.iter().map(|sample| (sample.name.clone(), sample.labels.clone())).collect()
    }
}

#[track_caller]
fn parse_sample(line: &str) -> Sample {
    let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    let value = if value == "+Inf" { f64::INFINITY } else { value.parse().unwrap() };
    let (name, labels) = match series.split_once('{') {
        None => (series, BTreeMap::new()),
        Some((name, rest)) => {
            let inside = rest.strip_suffix('}').unwrap_or_else(|| panic!("{line:?}"));
            // The values of our labels need no escapes, so a quote or backslash is an error.
            let pairs = inside.split(',').map(|pair| pair.split_once('=').unwrap());
            let unquoted = |value: &str| {
                let bare = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let bare = bare.unwrap_or_else(|| panic!("{line:?}"));
                assert!(!bare.contains(['"', '\\']), "{line:?}");
                bare.to_owned()
            };
            (name, pairs.map(|(key, value)| (key.to_owned(), unquoted(value))).collect())
        }
    };
    assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{line:?}");
    Sample { name: name.to_owned(), labels, value }
}
