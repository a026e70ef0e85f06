//! The language table: `languages.toml`, parsed and validated.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::version::Version;
use cofferdam_core::values::bytes::parse_bytes;
use cofferdam_core::values::names::is_variable_name;
use cofferdam_core::values::rel_path::RelPath;

/// The name of the table in a languages directory.
const TABLE_FILE: &str = "languages.toml";
/// The largest table read, in bytes.
const TABLE_BYTES_MAX: u64 = 1 << 20;
/// The file of the asserts, in the folder of the language.
const ASSERTS_FILE: &str = "asserts.json";

/// One language. Paths are below the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Language {
    /// Its name in requests.
    pub slug: String,
    /// Where the posted files go.
    pub folder: RelPath,
    /// Where `solution_text` goes.
    pub solution: RelPath,
    /// Where `checker_text` goes. A language with a checker requires it.
    pub checker: Option<RelPath>,
    /// Where `asserts` goes.
    pub asserts: RelPath,
    /// The executables that must be in PATH in the sandbox, the toolchain first.
    pub requires: Vec<AnyOf>,
    /// The command that prints the toolchain's version, on either stream.
    pub version: Vec<String>,
    /// The oldest version that the workspace works with.
    pub minimum: Option<Version>,
    /// Variables of every run, which override the default ones.
    pub env: BTreeMap<String, String>,
    /// The lowest memory limit that the toolchain works with, in bytes.
    pub memory_bytes_max: Option<u64>,
    /// The lowest disk limit that the toolchain works with, in bytes.
    pub disk_bytes_max: Option<u64>,
}

/// Executables of which one is enough, by their bare names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnyOf(Vec<String>);

impl AnyOf {
    /// The names, the preferred one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

/// Why a text is not a language table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// The file exists but cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Not TOML, or a slug is given twice.
    #[error("languages.toml line {line}: {}", source.message())]
    Syntax {
        /// The line, counted from one.
        line: usize,
        /// The message of the parser.
        source: Box<toml::de::Error>,
    },
    /// A key is missing, unknown, or of another type.
    #[error("language {slug}: {}", one_line(source))]
    Shape {
        /// The language.
        slug: String,
        /// The message of the parser, which names the key.
        source: Box<toml::de::Error>,
    },
    /// An invalid slug.
    #[error("language {0:?}: a slug is lower-case letters and digits, a letter first")]
    Slug(String),
    /// An invalid value.
    #[error("language {slug}: {field}: {reason}")]
    Field {
        /// The language.
        slug: String,
        /// The key in its table.
        field: &'static str,
        /// The expected value.
        reason: &'static str,
    },
}

/// The message of the parser on one line. The parser puts the key on a second line.
fn one_line(error: &toml::de::Error) -> String {
    error.to_string().trim_end().replace('\n', " ")
}

/// All languages, by slug.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LanguageTable(BTreeMap<String, Language>);

impl LanguageTable {
    /// The table that this binary contains.
    pub fn embedded() -> Result<Self, TableError> {
        Self::parse(include_str!("../../../langs/languages.toml"))
    }

    /// The table in `langs_dir`, or the embedded one if the directory has none.
    pub fn load(langs_dir: &Path) -> Result<Self, TableError> {
        let path = langs_dir.join(TABLE_FILE);
        match read_bounded(&path) {
            Ok(text) => Self::parse(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::embedded(),
            Err(source) => Err(TableError::Read { path, source }),
        }
    }

    /// Parses a table.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let tables: BTreeMap<String, toml::Value> = toml::from_str(text).map_err(|source| {
            let start = source.span().map_or(0, |span| span.start);
            let line = 1 + text.bytes().take(start).filter(|byte| *byte == b'\n').count();
            TableError::Syntax { line, source: Box::new(source) }
        })?;
        let languages = tables.into_iter().map(|(slug, value)| {
            if !is_slug(&slug) {
                return Err(TableError::Slug(slug));
            }
            let entry = TableEntry::deserialize(value).map_err(|source| TableError::Shape {
                slug: slug.clone(),
                source: source.into(),
            })?;
            let language = entry.check(&slug).map_err(|(field, reason)| TableError::Field {
                slug: slug.clone(),
                field,
                reason,
            })?;
            Ok((slug, language))
        });
        Ok(Self(languages.collect::<Result<_, _>>()?))
    }

    /// The language of exactly this slug.
    pub fn get(&self, slug: &str) -> Option<&Language> {
        self.0.get(slug)
    }

    /// Every language, sorted by slug.
    pub fn iter(&self) -> impl Iterator<Item = &Language> {
        self.0.values()
    }
}

/// One language in the file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TableEntry {
    folder: String,
    solution: String,
    checker: Option<String>,
    requires: Vec<Requirement>,
    version: Vec<String>,
    minimum: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    memory_max: Option<String>,
    disk_max: Option<String>,
}

/// One executable, or several of which one is enough.
#[derive(Deserialize)]
#[serde(untagged)]
enum Requirement {
    One(String),
    AnyOf(Vec<String>),
}

impl From<Requirement> for AnyOf {
    fn from(requirement: Requirement) -> Self {
        match requirement {
            Requirement::One(name) => Self(vec![name]),
            Requirement::AnyOf(names) => Self(names),
        }
    }
}

/// A key and the value it should have.
type TableFault = (&'static str, &'static str);

impl TableEntry {
    fn check(self, slug: &str) -> Result<Language, TableFault> {
        let folder = RelPath::parse(&self.folder)
            .map_err(|_| ("folder", "want a relative path that stays inside the workspace"))?;
        let inside = |field, name: &str| {
            let path = RelPath::parse(&format!("{folder}/{name}"));
            path.ok().filter(|_| !name.contains('/')).ok_or((field, "want a file name"))
        };
        let solution = inside("solution", &self.solution)?;
        let checker = self.checker.as_deref().map(|name| inside("checker", name)).transpose()?;
        let asserts = inside("folder", ASSERTS_FILE)?;
        if solution == asserts {
            return Err(("solution", "asserts.json is taken"));
        }
        if checker.as_ref().is_some_and(|checker| *checker == solution || *checker == asserts) {
            return Err(("checker", "the name is taken"));
        }
        let requires: Vec<AnyOf> = self.requires.into_iter().map(AnyOf::from).collect();
        check_commands(&requires, &self.version)?;
        check_env(&self.env)?;
        Ok(Language {
            slug: slug.to_owned(),
            folder,
            solution,
            checker,
            asserts,
            requires,
            version: self.version,
            minimum: minimum(self.minimum.as_deref())?,
            env: self.env,
            memory_bytes_max: byte_count("memory_max", self.memory_max.as_deref())?,
            disk_bytes_max: byte_count("disk_max", self.disk_max.as_deref())?,
        })
    }
}

fn check_commands(requires: &[AnyOf], version: &[String]) -> Result<(), TableFault> {
    let is_bare = |name: &str| RelPath::parse(name).is_ok() && !name.contains('/');
    let is_met = |any: &AnyOf| !any.0.is_empty() && any.names().all(is_bare);
    if requires.is_empty() || !requires.iter().all(is_met) {
        return Err(("requires", "want at least one executable, by its bare name"));
    }
    let runnable = version.first().is_some_and(|name| is_bare(name));
    if !runnable || version.iter().any(|word| word.contains('\0')) {
        return Err(("version", "want an executable's bare name and its arguments"));
    }
    Ok(())
}

fn check_env(env: &BTreeMap<String, String>) -> Result<(), TableFault> {
    if !env.keys().all(|name| is_variable_name(name)) {
        return Err(("env", "a variable's name is letters, digits and underscores"));
    }
    if env.values().any(|value| value.contains('\0')) {
        return Err(("env", "a variable's value holds a NUL"));
    }
    Ok(())
}

fn minimum(text: Option<&str>) -> Result<Option<Version>, TableFault> {
    let parsed =
        text.map(|text| Version::parse(text).ok_or("want numbers divided by dots, as 1.18"));
    parsed.transpose().map_err(|want| ("minimum", want))
}

fn byte_count(field: &'static str, text: Option<&str>) -> Result<Option<u64>, TableFault> {
    let parsed = text.map(parse_bytes).transpose();
    parsed.map_err(|_| (field, "want a byte count, as 512MiB or 1GiB"))
}

fn is_slug(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(TABLE_BYTES_MAX + 1).read_to_string(&mut text)?;
    let fits = u64::try_from(text.len()).is_ok_and(|bytes| bytes <= TABLE_BYTES_MAX);
    if fits { Ok(text) } else { Err(io::Error::other("larger than 1 MiB")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"
[toy]
folder = "check"
solution = "solution.toy"
requires = ["toy"]
version = ["toy", "--version"]
"#;

    /// `MINIMAL` with one line replaced or, where nothing matches, added.
    fn with(line: &str) -> String {
        let key = line.split(' ').next().unwrap();
        let mut lines: Vec<&str> =
            MINIMAL.lines().filter(|old| old.split(' ').next() != Some(key)).collect();
        lines.push(line);
        lines.join("\n")
    }

    fn refusal(text: &str) -> String {
        LanguageTable::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn the_embedded_table_is_the_contract() {
        let want = [
            ("clojure", "check", "solution.clj", None),
            ("cpp", "check", "solution.cpp", Some("checker.cpp")),
            ("csharp", "check", "Solution.cs", Some("Checker.cs")),
            ("dart", "lib", "solution.dart", Some("checker.dart")),
            ("elixir", "check", "solution.exs", None),
            ("golang", "check", "solution.go", Some("checker.go")),
            ("haskell", "check", "Solution.hs", Some("Checker.hs")),
            ("java", "check", "Solution.java", Some("Checker.java")),
            ("js", "check", "solution.js", None),
            ("kotlin", "check", "solution.kt", Some("checker.kt")),
            ("php", "check", "solution.php", None),
            ("python", "check", "solution.py", None),
            ("ruby", "check", "solution.rb", None),
            ("rust", "check", "solution.rs", Some("checker.rs")),
            ("swift", "check", "solution.swift", Some("checker.swift")),
            ("ts", "check", "solution.js", None),
            ("zig", "check", "solution.zig", Some("checker.zig")),
        ];
        let table = LanguageTable::embedded().unwrap();
        let have: Vec<_> = table
            .iter()
            .map(|language| {
                let checker = language.checker.as_ref().map(RelPath::file_name);
                assert_eq!(language.asserts.as_str(), format!("{}/asserts.json", language.folder));
                assert_eq!(language.solution.parent().as_ref(), Some(&language.folder));
                (
                    language.slug.as_str(),
                    language.folder.as_str(),
                    language.solution.file_name(),
                    checker,
                )
            })
            .collect();
        assert_eq!(have, want);
    }

    #[test]
    fn a_slug_is_matched_exactly() {
        let table = LanguageTable::embedded().unwrap();
        assert!(table.get("python").is_some());
        for slug in ["Python", "python ", "", "py", "python\0"] {
            assert_eq!(table.get(slug), None, "{slug:?}");
        }
    }

    #[test]
    fn every_key_arrives() {
        let text = r#"
        [toy]
        folder = "src/check"
        solution = "s.toy"
        checker = "c.toy"
        requires = ["toyc", ["toy", "toy-ng"]]
        version = ["toyc", "-V"]
        minimum = "1.10"
        memory_max = "1GiB"
        disk_max = "600MiB"
        env = { TOY_HOME = "/opt/toy" }
    "#;
        let table = LanguageTable::parse(text).unwrap();
        let path = |text| RelPath::parse(text).unwrap();
        let want = Language {
            slug: "toy".into(),
            folder: path("src/check"),
            solution: path("src/check/s.toy"),
            checker: Some(path("src/check/c.toy")),
            asserts: path("src/check/asserts.json"),
            requires: vec![AnyOf(vec!["toyc".into()]), AnyOf(vec!["toy".into(), "toy-ng".into()])],
            version: vec!["toyc".into(), "-V".into()],
            minimum: Version::parse("1.10"),
            env: BTreeMap::from([("TOY_HOME".into(), "/opt/toy".into())]),
            memory_bytes_max: Some(1 << 30),
            disk_bytes_max: Some(600 << 20),
        };
        assert_eq!(table.get("toy"), Some(&want));
    }

    #[test]
    fn a_refusal_names_the_language_and_the_key() {
        assert!(LanguageTable::parse(MINIMAL).is_ok());
        let table = [
            ("folder = \"../check\"", "folder"),
            ("folder = \"/check\"", "folder"),
            ("folder = \"\"", "folder"),
            ("folder = 3", "folder"),
            ("solution = \"a/b\"", "solution"),
            ("solution = \"..\"", "solution"),
            ("solution = \"\"", "solution"),
            ("solution = \"asserts.json\"", "solution"),
            ("checker = \"solution.toy\"", "checker"),
            ("checker = \"asserts.json\"", "checker"),
            ("checker = \"/etc/passwd\"", "checker"),
            ("requires = []", "requires"),
            ("requires = [\"/usr/bin/toy\"]", "requires"),
            ("requires = \"toy\"", "requires"),
            ("requires = [[]]", "requires"),
            ("requires = [[\"toy\", \"/bin/toy\"]]", "requires"),
            ("requires = [3]", "requires"),
            ("version = []", "version"),
            ("version = [\"toy\", \"\\u0000\"]", "version"),
            ("minimum = \"new\"", "minimum"),
            ("minimum = 1.18", "minimum"),
            ("memory_max = \"lots\"", "memory_max"),
            ("disk_max = 5", "disk_max"),
            ("env = { \"A=B\" = \"c\" }", "env"),
            ("env = { 1A = \"c\" }", "env"),
            ("env = { A = \"\\u0000\" }", "env"),
            ("extension = \"toy\"", "extension"),
        ];
        for (line, key) in table {
            let message = refusal(&with(line));
            let named = message.starts_with("language toy: ") && message.contains(key);
            assert!(named && !message.contains('\n'), "{line}: {message:?}");
        }
        let message = refusal(&MINIMAL.replace("solution = \"solution.toy\"\n", ""));
        assert!(message.contains("language toy: ") && message.contains("solution"), "{message}");
    }

    #[test]
    fn a_slug_given_twice_is_refused_with_its_line() {
        let message = refusal(&format!("{MINIMAL}{MINIMAL}"));
        assert!(message.starts_with("languages.toml line 8: "), "{message}");
        for slug in ["Toy", "\"a b\"", "\"\"", "c-sharp", "1c"] {
            let message = refusal(&MINIMAL.replace("[toy]", &format!("[{slug}]")));
            assert!(message.contains("a slug is"), "{slug}: {message}");
        }
    }

    #[test]
    fn a_directorys_own_table_replaces_the_embedded_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(TABLE_FILE);
        assert_eq!(LanguageTable::load(dir.path()).unwrap(), LanguageTable::embedded().unwrap());
        std::fs::write(&path, MINIMAL).unwrap();
        let slugs: Vec<String> =
            LanguageTable::load(dir.path()).unwrap().iter().map(|l| l.slug.clone()).collect();
        assert_eq!(slugs, ["toy"]);
        std::fs::write(&path, "#".repeat((1 << 20) + 1)).unwrap();
        assert!(matches!(LanguageTable::load(dir.path()), Err(TableError::Read { .. })));
    }
}
