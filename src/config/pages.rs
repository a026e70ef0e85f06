//! The documents that the table of variables yields.

use super::table::{DefaultValue, GROUPS, Variable};

const PAGE_START: &str = "\
# Configuration

<!-- Printed from src/config/table by `make config-docs`. -->

These environment variables configure `cofferdam serve`. If a value does not parse, the service prints all such
problems together and refuses to start. Sizes take `KiB`, `MiB`, `GiB`; durations `ms`, `s`, `m`, `h`.
";
const FILE_START: &str = "\
# /etc/cofferdam.env: the environment variables that `cofferdam serve` reads, with their defaults
# or an example. docs/configuration.md has more.
# Printed from src/config/table by `make config-docs`.
";

/// `docs/configuration.md`.
pub fn configuration_page() -> String {
    let mut page = PAGE_START.to_owned();
    for group in GROUPS {
        page += &format!("\n## {}\n\n", group.title);
        if !group.introduction.is_empty() {
            page += &format!("{}\n\n", group.introduction);
        }
        page += "| name | default | meaning |\n|---|---|---|\n";
        for variable in group.variables {
            let default = match variable.default {
                DefaultValue::Value(value) => format!("`{value}` "),
                DefaultValue::InWords(words) => format!("{words} "),
                DefaultValue::Absent => String::new(),
            };
            let text = format!("{} {}", variable.meaning, variable.details);
            page += &format!("| `{}` | {default}| {} |\n", variable.name, text.trim_end());
        }
    }
    page
}

/// `deploy/systemd/cofferdam.env`.
pub fn environment_file() -> String {
    let mut file = FILE_START.to_owned();
    for group in GROUPS {
        file += &format!("\n# == {} ==\n", group.title);
        for line in plain(group.introduction).lines() {
            file += &format!("# {line}\n");
        }
        for variable in group.variables {
            let is_default = variable.default_value() == Some(variable.example_value());
            let default = if is_default { String::new() } else { default_note(variable) };
            file += &format!("# {}{default}\n", plain(variable.meaning));
            file += &format!("#{}={}\n", variable.name, variable.example_value());
        }
    }
    file
}

/// The variables in `cofferdam serve --help`.
pub fn variables_help() -> String {
    let mut help = "Environment variables:".to_owned();
    for group in GROUPS {
        help += &format!("\n\n{}:", group.title);
        for line in plain(group.introduction).lines() {
            help += &format!("\n  {line}");
        }
        for variable in group.variables {
            let (meaning, default) = (plain(variable.meaning), default_note(variable));
            help += &format!("\n  {}\n          {meaning}{default}", variable.name);
        }
    }
    help
}

/// The default of `variable`, to be printed after its meaning.
fn default_note(variable: &Variable) -> String {
    match variable.default {
        DefaultValue::Value(text) | DefaultValue::InWords(text) => {
            format!(" [default: {}]", plain(text))
        }
        DefaultValue::Absent => String::new(),
    }
}

/// `markdown` without its marks: code without backticks, a link as its text.
fn plain(markdown: &str) -> String {
    // Of `[text](target)`, the text.
    let without_links = markdown.split("](").enumerate().map(|(index, part)| {
        if index == 0 { part } else { part.split_once(')').map_or(part, |(_, after)| after) }
    });
    without_links.collect::<String>().replace(['`', '['], "")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::table::{FIRECRACKER, variables};
    use super::super::{Config, Overrides};
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Config, Vec<String>) {
        let environment = pairs.iter().map(|(name, value)| (name.into(), value.into()));
        let (config, problems) = Config::read(environment, &Overrides::default());
        (config, problems.0)
    }

    #[test]
    fn an_unset_variable_means_its_default() {
        // Some of these variables are refused without the others.
        let firecracker = FIRECRACKER.variables.iter().filter(|row| row.default_value().is_none());
        let base: Vec<_> = firecracker.map(|row| (row.name, row.example_value())).collect();
        let expected = read(&base);
        assert_eq!(expected.1, [""; 0]);
        for variable in variables() {
            let Some(value) = variable.default_value() else { continue };
            let set = [&base[..], &[(variable.name, value)]].concat();
            assert_eq!(read(&set), expected, "{}={value}", variable.name);
        }
    }

    #[test]
    fn every_example_is_accepted() {
        let mut pairs: Vec<_> =
            variables().map(|variable| (variable.name, variable.example_value())).collect();
        // The files do not exist here.
        let files = ["AUTH_TOKENS_FILE", "EGRESS_CA_FILE", "SECRETS_FILE", "SECRETS_FILE_MODE"];
        pairs.retain(|(name, _)| !files.contains(name));
        assert_eq!(read(&pairs).1, [""; 0]);
        assert!(pairs.iter().all(|(_, value)| !value.is_empty()), "{pairs:?}");
    }

    #[test]
    fn every_row_is_complete_and_fits_its_documents() {
        let names: BTreeSet<&str> = variables().map(|variable| variable.name).collect();
        assert_eq!(names.len(), variables().count());
        for variable in variables() {
            let name = variable.name;
            assert!(!variable.wanted.is_empty(), "{name}");
            assert!(variable.meaning.ends_with('.'), "{name}");
            assert!(!format!("{variable:?}").contains(['|', '\n']), "{name}");
        }
    }

    #[test]
    fn plain_text_has_neither_backticks_nor_links() {
        assert_eq!(plain("Of `a` and [b](c.md), d"), "Of a and b, d");
    }
}
