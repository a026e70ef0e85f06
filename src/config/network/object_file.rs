//! A network object in a file.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;
use zeroize::Zeroizing;

use crate::config::reader::VariableReader;
use crate::config::table::Variable;
use crate::egress::rules::NetworkRules;
use cofferdam_core::NetworkObject;
use cofferdam_core::json::parse_object;

/// The longest file with a network object, bytes.
const NETWORK_FILE_BYTES_MAX: u64 = 4 << 20;

/// Reads the object in a file in JSON, YAML or TOML, as strictly as that of a request.
///
/// # Errors
/// What is wrong, never a value: it may be a secret.
pub fn read_network_object(path: &Path) -> Result<NetworkObject, String> {
    let text = read(path)?;
    let is = |kind: &str| path.extension().is_some_and(|extension| extension == kind);
    let json = if is("json") {
        text
    } else {
        // What parsers quote may hold a secret: only the place is told.
        let value: Value = if is("toml") {
            toml::from_str(&text).map_err(|error| {
                let before = text.get(..error.span().map_or(0, |span| span.start));
                format!("not TOML: line {}", before.unwrap_or_default().lines().count().max(1))
            })?
        } else {
            serde_saphyr::from_str(&text).map_err(|_| "not YAML".to_owned())?
        };
        Zeroizing::new(value.to_string())
    };
    parse_object(json.as_bytes()).map_err(|fault| fault.to_string())
}

fn read(path: &Path) -> Result<Zeroizing<String>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let mut text = Zeroizing::new(String::new());
    let mut bounded = file.take(NETWORK_FILE_BYTES_MAX + 1);
    bounded.read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > NETWORK_FILE_BYTES_MAX {
        return Err(format!("longer than {NETWORK_FILE_BYTES_MAX} bytes"));
    }
    Ok(text)
}

/// The network object in `variable`: JSON, or a file with one.
pub fn optional_network(reader: &mut VariableReader, variable: &Variable) -> Option<NetworkObject> {
    let text = reader.text(variable)?;
    let read = if text.trim_start().starts_with('{') {
        parse_object(text.as_bytes()).map_err(|fault| fault.to_string())
    } else {
        read_network_object(Path::new(text)).map_err(|fault| format!("{text}: {fault}"))
    };
    let checked = read.and_then(|network: NetworkObject| {
        NetworkRules::check(&network).map_err(|fault| fault.to_string()).map(|()| network)
    });
    match checked {
        Ok(network) => Some(network),
        Err(fault) => {
            reader.problem(format!("{}: {fault}", variable.name));
            // The start is refused; until then nothing is reached.
            Some(NetworkObject::default())
        }
    }
}

/// The files that variables with a network object name.
pub fn network_files<const N: usize>(
    reader: &VariableReader,
    variables: [&Variable; N],
) -> Vec<PathBuf> {
    let texts = variables.into_iter().filter_map(|variable| reader.any_text(variable.name));
    let paths = texts.filter(|text| !text.trim_start().starts_with('{'));
    paths.filter_map(|path| std::path::absolute(path).ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_in_each_format_is_read_as_strictly_as_a_request() {
        let place = tempfile::tempdir().unwrap();
        let read = |name: &str, text: &str| {
            fs::write(place.path().join(name), text).unwrap();
            read_network_object(&place.path().join(name))
        };
        let of_json = read(
            "n.json",
            r#"{"allow": ["a.test"], "secrets": {"k": {"value": "12345678x", "hosts": ["a.test"]}}}"#,
        );
        let of_json = of_json.unwrap();
        let of_yaml =
            read("n.yaml", "allow: [a.test]\nsecrets:\n  k: {value: 12345678x, hosts: [a.test]}\n");
        let of_toml = read(
            "n.toml",
            "allow = [\"a.test\"]\n[secrets.k]\nvalue = \"12345678x\"\nhosts = [\"a.test\"]\n",
        );
        assert_eq!([of_yaml.unwrap(), of_toml.unwrap()], [of_json.clone(), of_json]);
        for (name, text, told) in [
            ("n.json", r#"{"secrets": {"k": "do-not-show"}}"#, "secrets.k"),
            ("n.yaml", "secrets:\n  k: do-not-show\n", "secrets.k"),
            ("n.toml", "[secrets]\nk = \"do-not-show\"\n", "secrets.k"),
            ("n.toml", "[secrets]\nk = do-not-show\n", "line"),
            ("n.yaml", "secrets: [do-not-show\n", "not YAML"),
            ("n.yaml", "other: 1\n", "other"),
        ] {
            let fault = read(name, text).unwrap_err();
            assert!(fault.contains(told) && !fault.contains("do-not-show"), "{text}: {fault}");
        }
    }
}
