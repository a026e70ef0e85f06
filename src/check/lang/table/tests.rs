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
