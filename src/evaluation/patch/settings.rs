//! Files of which only the settings of test runners are restored (pure).

use serde_json::Value;

/// The keys of `package.json` that are restored.
const PACKAGE_KEYS: [&str; 5] = ["scripts", "jest", "mocha", "vitest", "ava"];
const PYTEST_SECTION: &str = "[tool:pytest]";

/// A file with settings of test runners and others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingsFormat {
    /// `pyproject.toml`: the tables `tool.pytest*`.
    PyProject,
    /// `setup.cfg`: the section `[tool:pytest]`.
    SetupCfg,
    /// `package.json`.
    Package,
}

/// A file with the base's settings of test runners.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergedSettings {
    /// It has them already.
    Unchanged,
    /// The contents of the file with them.
    Merged(Vec<u8>),
    /// The whole file has to be the base's.
    Whole,
}

impl SettingsFormat {
    /// The format of a file of that name.
    pub fn of(name: &[u8]) -> Option<Self> {
        match name {
            b"pyproject.toml" => Some(Self::PyProject),
            b"setup.cfg" => Some(Self::SetupCfg),
            b"package.json" => Some(Self::Package),
            _ => None,
        }
    }

    /// The file `after` with the settings of `before`, which has none if it was not there.
    pub fn merge(self, before: Option<&[u8]>, after: &[u8]) -> MergedSettings {
        let empty: &[u8] = if self == Self::Package { b"{}" } else { b"" };
        let merged = match self {
            Self::PyProject => merge_py_project(before.unwrap_or(empty), after),
            Self::SetupCfg => merge_setup_cfg(before.unwrap_or(empty), after),
            Self::Package => merge_package(before.unwrap_or(empty), after),
        };
        merged.unwrap_or(MergedSettings::Whole)
    }

    /// The file was removed: whole if it had settings.
    pub fn of_removed(self, before: Option<&[u8]>) -> MergedSettings {
        let empty: &[u8] = if self == Self::Package { b"{}" } else { b"" };
        match self.merge(before, empty) {
            MergedSettings::Unchanged => MergedSettings::Unchanged,
            MergedSettings::Merged(_) | MergedSettings::Whole => MergedSettings::Whole,
        }
    }
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn merge_py_project(before: &[u8], after: &[u8]) -> Option<MergedSettings> {
    let before: toml::Table = text(before)?.parse().ok()?;
    let mut after: toml::Table = text(after)?.parse().ok()?;
    let wanted = pytest_tables(&before);
    if wanted == pytest_tables(&after) {
        return Some(MergedSettings::Unchanged);
    }
    let tool = after.entry("tool").or_insert_with(|| toml::Table::new().into()).as_table_mut()?;
    tool.retain(|name, _| !name.starts_with("pytest"));
    tool.extend(wanted);
    Some(MergedSettings::Merged(toml::to_string(&after).ok()?.into_bytes()))
}

fn pytest_tables(file: &toml::Table) -> toml::Table {
    let tool = file.get("tool").and_then(toml::Value::as_table);
    let tables = tool.into_iter().flatten().filter(|(name, _)| name.starts_with("pytest"));
    tables.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn merge_package(before: &[u8], after: &[u8]) -> Option<MergedSettings> {
    let before: Value = serde_json::from_slice(before).ok()?;
    let mut after: Value = serde_json::from_slice(after).ok()?;
    let (before, fields) = (before.as_object()?, after.as_object_mut()?);
    if PACKAGE_KEYS.iter().all(|key| before.get(*key) == fields.get(*key)) {
        return Some(MergedSettings::Unchanged);
    }
    for key in PACKAGE_KEYS {
        match before.get(key) {
            Some(value) => drop(fields.insert(key.to_owned(), value.clone())),
            None => drop(fields.remove(key)),
        }
    }
    Some(MergedSettings::Merged(serde_json::to_vec_pretty(&after).ok()?))
}

fn merge_setup_cfg(before: &[u8], after: &[u8]) -> Option<MergedSettings> {
    let (before, after) = (text(before)?, text(after)?);
    let ([wanted, _], [found, rest]) = (parts(before), parts(after));
    if wanted.trim_end() == found.trim_end() {
        return Some(MergedSettings::Unchanged);
    }
    let gap = if rest.is_empty() || rest.ends_with('\n') { "" } else { "\n" };
    Some(MergedSettings::Merged(format!("{rest}{gap}{wanted}").into_bytes()))
}

/// The sections of pytest, and all others.
fn parts(file: &str) -> [String; 2] {
    let [mut of_pytest, mut others] = [String::new(), String::new()];
    let mut is_pytest = false;
    for line in file.split_inclusive(['\n', '\r']) {
        if line.starts_with('[') {
            is_pytest = line.starts_with(PYTEST_SECTION);
        }
        if is_pytest { &mut of_pytest } else { &mut others }.push_str(line);
    }
    [of_pytest, others]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(format: SettingsFormat, before: &str, after: &str) -> Option<String> {
        match format.merge(Some(before.as_bytes()), after.as_bytes()) {
            MergedSettings::Unchanged => None,
            MergedSettings::Merged(bytes) => Some(String::from_utf8(bytes).unwrap()),
            MergedSettings::Whole => Some("whole".to_owned()),
        }
    }

    #[test]
    fn only_the_settings_of_test_runners_are_the_bases() {
        use SettingsFormat::{Package, PyProject, SetupCfg};
        let base = "[tool.pytest.ini_options]\naddopts = \"-q\"\n";
        let agents = "[project]\nname = \"n\"\n\n[tool.pytest.ini_options]\naddopts = \"-k x\"\n";
        let both: toml::Table = merged(PyProject, base, agents).unwrap().parse().unwrap();
        assert_eq!(both["project"]["name"].as_str(), Some("n"));
        assert_eq!(both["tool"]["pytest"]["ini_options"]["addopts"].as_str(), Some("-q"));

        let both = merged(Package, r#"{"scripts":{"test":"a"}}"#, r#"{"x":1,"ava":2}"#).unwrap();
        let both: Value = serde_json::from_str(&both).unwrap();
        assert_eq!(both, serde_json::json!({"x": 1, "scripts": {"test": "a"}}));

        let both = merged(SetupCfg, "[tool:pytest]\na=1\n", "[x]\nb=2\n[tool:pytest]\na=3\n[y]\n");
        assert_eq!(both.as_deref(), Some("[x]\nb=2\n[y]\n[tool:pytest]\na=1\n"));
    }

    #[test]
    fn a_file_that_differs_elsewhere_is_the_agents() {
        for (format, before, after) in [
            (SettingsFormat::PyProject, "[a]\n", "[b]\n"),
            (SettingsFormat::Package, "{}", "{\"a\": 1}"),
            (SettingsFormat::SetupCfg, "[a]\n[tool:pytest]\nx=1", "[tool:pytest]\nx=1\n[b]\n"),
        ] {
            assert_eq!(merged(format, before, after), None, "{after}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_parsed_is_restored_whole() {
        for (format, after) in [
            (SettingsFormat::PyProject, &b"= 1"[..]),
            (SettingsFormat::Package, b"[1]"),
            (SettingsFormat::Package, b"{"),
            (SettingsFormat::SetupCfg, b"\xff"),
        ] {
            assert_eq!(format.merge(None, after), MergedSettings::Whole);
        }
        assert_eq!(
            SettingsFormat::PyProject.of_removed(Some(b"[tool.pytest]\na = 1\n")),
            MergedSettings::Whole
        );
        assert_eq!(SettingsFormat::PyProject.of_removed(Some(b"[a]\n")), MergedSettings::Unchanged);
    }
}
