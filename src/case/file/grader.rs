//! `graders`: how the result of an agent is judged.

use std::path::PathBuf;

use super::block::{CaseBlock, CaseField, CaseReading};
use super::finding::CaseCode;
use super::node::YamlValue;
use super::paths::{WantedFile, case_path, relative_path};

const COMMON_KEYS: [&str; 3] = ["type", "weight", "gate"];
const TESTS_KEYS: [&str; 6] =
    ["cmd", "inject", "junit_xml", "expect_total", "pass_threshold", "timeout_s"];
/// The graders that are skipped. Their keys are their own.
const UNSUPPORTED: [&str; 4] = ["model_judge", "trace", "efficiency", "tool_correctness"];
const TEST_SECONDS: f64 = 300.0;
const SWEBENCH_SECONDS: f64 = 600.0;
/// What `cmd_prefix` has to end in, before its options.
const PYTEST_WORDS: [&str; 3] = ["python3", "-m", "pytest"];

/// A hidden file that is put into the sandbox before grading.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFile {
    /// Below the directory of the Case, or of its fixtures.
    pub source: PathBuf,
    /// In the sandbox.
    pub destination: PathBuf,
}

/// How tests are run and counted.
#[derive(Debug, Clone, PartialEq)]
pub struct TestCounts {
    /// Hidden files.
    pub inject: Vec<InjectedFile>,
    /// Patterns of reports; none for counts from the console.
    pub junit_xml: Vec<String>,
    /// How many tests there have to be.
    pub expect_total: Option<i64>,
    /// The fraction that passes.
    pub pass_threshold: f64,
    /// Limit, seconds.
    pub timeout_s: f64,
}

/// A grader of its type.
#[derive(Debug, Clone, PartialEq)]
pub enum GraderKind {
    /// A command's exit code.
    Command {
        /// The shell command.
        cmd: String,
        /// The exit code of success.
        expect_exit: i64,
        /// Limit, seconds.
        timeout_s: f64,
    },
    /// Counted tests of a command.
    Tests {
        /// The shell command.
        cmd: String,
        /// The counts.
        counts: TestCounts,
    },
    /// Tests by our own runner of pytest.
    Pytest {
        /// The counts.
        counts: TestCounts,
    },
    /// Tests by id: those to be mended, and those not to be broken.
    Swebench {
        /// Ids that have to pass.
        fail_to_pass: Vec<String>,
        /// Ids that have to pass still.
        pass_to_pass: Vec<String>,
        /// Hidden files.
        inject: Vec<InjectedFile>,
        /// The command line of pytest.
        cmd_prefix: String,
        /// Limit, seconds.
        timeout_s: f64,
        /// Weight of the gate on `pass_to_pass`.
        gate_weight: f64,
    },
    /// Files that have to be there.
    Files {
        /// A directory whose files have to be the same.
        expect_dir: Option<PathBuf>,
        /// Texts that have to occur.
        patterns: Vec<String>,
    },
    /// No `NotImplementedError` is left.
    Implemented {
        /// The files; every `*.py` if none.
        files: Vec<PathBuf>,
    },
    /// A grader that is skipped.
    Unsupported {
        /// Its type.
        name: String,
    },
}

/// A grader.
#[derive(Debug, Clone, PartialEq)]
pub struct CaseGrader {
    /// What it does; `None` after an error.
    pub kind: Option<GraderKind>,
    /// Its weight.
    pub weight: f64,
    /// Whether the whole Cell fails with it.
    pub gate: bool,
}

#[derive(Debug, Clone, Copy)]
enum TypeWord {
    Command,
    Tests,
    Pytest,
    Swebench,
    Files,
    Implemented,
    Unsupported,
}

const TYPES: [(&str, TypeWord); 10] = [
    ("command", TypeWord::Command),
    ("tests", TypeWord::Tests),
    ("pytest", TypeWord::Pytest),
    ("swebench", TypeWord::Swebench),
    ("files", TypeWord::Files),
    ("implemented", TypeWord::Implemented),
    (UNSUPPORTED[0], TypeWord::Unsupported),
    (UNSUPPORTED[1], TypeWord::Unsupported),
    (UNSUPPORTED[2], TypeWord::Unsupported),
    (UNSUPPORTED[3], TypeWord::Unsupported),
];

impl CaseGrader {
    /// Reads one grader. With `has_fixtures` hidden files are not below the directory of the Case.
    pub fn read(field: &CaseField<'_>, reading: &mut CaseReading<'_>, has_fixtures: bool) -> Self {
        let YamlValue::Map(entries) = &field.node.value else {
            field.block(reading, &[]);
            return Self { kind: None, weight: 1.0, gate: false };
        };
        let written = entries.iter().find(|(key, _)| key.name == "type").map(|(_, node)| node);
        let word = written.and_then(|node| match &node.value {
            YamlValue::Text(text) => TYPES.iter().find(|(name, _)| name == text),
            _ => None,
        });
        let all: Vec<&str> = entries.iter().map(|(key, _)| key.name.as_str()).collect();
        let own_keys: &[&str] = match word.map(|(_, word)| *word) {
            Some(TypeWord::Command) => &["cmd", "expect_exit", "timeout_s"],
            Some(TypeWord::Tests | TypeWord::Pytest) => &TESTS_KEYS,
            Some(TypeWord::Swebench) => &[
                "fail_to_pass",
                "pass_to_pass",
                "inject",
                "cmd_prefix",
                "timeout_s",
                "gate_weight",
            ],
            Some(TypeWord::Files) => &["expect_dir", "patterns"],
            Some(TypeWord::Implemented) => &["files"],
            // Their keys are not known here.
            Some(TypeWord::Unsupported) | None => &all,
        };
        let block = field.block(reading, &[&COMMON_KEYS, own_keys].concat());
        let kind = block.required(reading, "type").and_then(|field| field.word(reading, &TYPES));
        let grader = GraderBlock { block: &block, has_fixtures };
        Self {
            kind: kind.and_then(|kind| grader.read(kind, reading)),
            weight: block.number(reading, "weight", f64::INFINITY, 1.0),
            gate: block.flag(reading, "gate", false),
        }
    }
}

/// A grader's block.
#[derive(Clone, Copy)]
struct GraderBlock<'b, 'n> {
    block: &'b CaseBlock<'n>,
    has_fixtures: bool,
}

impl GraderBlock<'_, '_> {
    fn read(self, kind: TypeWord, reading: &mut CaseReading<'_>) -> Option<GraderKind> {
        let block = self.block;
        Some(match kind {
            TypeWord::Command => GraderKind::Command {
                cmd: block.required_text(reading, "cmd"),
                expect_exit: block.whole(reading, "expect_exit", 0, 0),
                timeout_s: block.seconds(reading, "timeout_s", TEST_SECONDS),
            },
            TypeWord::Tests => {
                let cmd = block.required_text(reading, "cmd");
                GraderKind::Tests { cmd, counts: self.counts(reading, true) }
            }
            TypeWord::Pytest => match block.text(reading, "cmd") {
                Some(cmd) => GraderKind::Tests { cmd, counts: self.counts(reading, true) },
                None => GraderKind::Pytest { counts: self.counts(reading, false) },
            },
            TypeWord::Swebench => self.swebench(reading),
            TypeWord::Files => GraderKind::Files {
                expect_dir: block
                    .get("expect_dir")
                    .and_then(|field| self.hidden(field, reading, WantedFile::Directory)),
                patterns: block.texts(reading, "patterns"),
            },
            TypeWord::Implemented => {
                let files = block.written("files").map(|field| field.items(reading));
                let files = files.unwrap_or_default();
                let files = files.iter().filter_map(|file| relative_path(file, reading)).collect();
                GraderKind::Implemented { files }
            }
            TypeWord::Unsupported => {
                let field = block.get("type")?;
                let name = field.text(reading)?.to_owned();
                let message = format!("graders of type '{name}' are skipped");
                field.warn(reading, CaseCode::UnsupportedGrader, message);
                GraderKind::Unsupported { name }
            }
        })
    }

    fn counts(self, reading: &mut CaseReading<'_>, by_console: bool) -> TestCounts {
        let block = self.block;
        let junit_xml = match block.written("junit_xml") {
            Some(field) if matches!(field.node.value, YamlValue::Text(_)) => {
                field.text(reading).map(str::to_owned).into_iter().collect()
            }
            Some(field) => field.texts(reading),
            None => Vec::new(),
        };
        if by_console && junit_xml.is_empty() {
            let message = "without 'junit_xml' tests are counted by what they print, which tested code can print too";
            reading.warn(block.at, &block.path, CaseCode::ConsoleCounts, message);
        }
        TestCounts {
            inject: self.inject(reading),
            junit_xml,
            expect_total: block.written("expect_total").and_then(|field| field.whole(reading, 0)),
            pass_threshold: block.number(reading, "pass_threshold", 1.0, 1.0),
            timeout_s: block.seconds(reading, "timeout_s", TEST_SECONDS),
        }
    }

    fn swebench(self, reading: &mut CaseReading<'_>) -> GraderKind {
        let block = self.block;
        let fail_to_pass = match block.required(reading, "fail_to_pass") {
            Some(field) => field.texts(reading),
            None => Vec::new(),
        };
        let cmd_prefix = block.text(reading, "cmd_prefix");
        let prefix_field = block.get("cmd_prefix");
        if let Some((field, prefix)) = prefix_field.zip(cmd_prefix.as_deref())
            && !ends_in_pytest(prefix)
        {
            let message = "'cmd_prefix' ends in `python3 -m pytest` and its options";
            field.error(reading, CaseCode::Conflict, message);
        }
        GraderKind::Swebench {
            fail_to_pass,
            pass_to_pass: block.texts(reading, "pass_to_pass"),
            inject: self.inject(reading),
            cmd_prefix: cmd_prefix.unwrap_or_else(|| PYTEST_WORDS.join(" ")),
            timeout_s: block.seconds(reading, "timeout_s", SWEBENCH_SECONDS),
            gate_weight: block.number(reading, "gate_weight", f64::INFINITY, 1.0),
        }
    }

    /// `inject`: a path goes to the root of the sandbox by its last name.
    fn inject(self, reading: &mut CaseReading<'_>) -> Vec<InjectedFile> {
        let Some(field) = self.block.written("inject") else { return Vec::new() };
        let mut files = Vec::new();
        for item in field.items(reading) {
            if matches!(item.node.value, YamlValue::Text(_)) {
                let source = self.hidden(&item, reading, WantedFile::Any);
                let name = source.as_deref().and_then(|source| source.file_name());
                files.extend(source.as_ref().zip(name).map(|(source, name)| InjectedFile {
                    source: source.clone(),
                    destination: name.into(),
                }));
                continue;
            }
            let block = item.block(reading, &["src", "dest"]);
            let source = block.required(reading, "src");
            let source = source.and_then(|field| self.hidden(field, reading, WantedFile::Any));
            let destination = block.required(reading, "dest");
            let destination = destination.and_then(|field| relative_path(field, reading));
            let both = source.zip(destination);
            files.extend(both.map(|(source, destination)| InjectedFile { source, destination }));
        }
        files
    }

    /// A hidden path: below the directory of the Case, or in its fixtures.
    fn hidden(
        self,
        field: &CaseField<'_>,
        reading: &mut CaseReading<'_>,
        wanted: WantedFile,
    ) -> Option<PathBuf> {
        match self.has_fixtures {
            true => relative_path(field, reading),
            false => case_path(field, reading, wanted),
        }
    }
}

/// Whether the command line ends in `python3 -m pytest` and options with their values.
fn ends_in_pytest(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let Some(start) = words.windows(3).rposition(|three| three == PYTEST_WORDS) else {
        return false;
    };
    let options = words.get(start + PYTEST_WORDS.len()..).unwrap_or_default();
    let is_plain = |word: &str| !word.contains([';', '&', '|', '<', '>', '`', '$', '(', ')', '#']);
    let mut may_be_value = false;
    options.iter().all(|word| {
        let is_option = word.starts_with('-') && *word != "--";
        let fits = is_plain(word) && (is_option || may_be_value);
        may_be_value = is_option && !word.contains('=');
        fits
    })
}
