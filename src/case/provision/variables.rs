//! Which variables of ours the commands of provisioning get. Pure.

use std::collections::BTreeMap;

use crate::evaluation::repository::is_for_install;

/// Variables that name indexes, or say how to reach them.
const INDEX_VARIABLES: [&str; 11] = [
    "PIP_EXTRA_INDEX_URL",
    "PIP_INDEX_URL",
    "PIP_NO_INDEX",
    "PIP_TRUSTED_HOST",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_NO_INDEX",
];
/// Variables that name places of packages: URLs, or directories of this host, which no Cell shows.
const PLACE_VARIABLES: [&str; 2] = ["PIP_FIND_LINKS", "UV_FIND_LINKS"];
/// Variables about certificates. Those of a client are credentials.
const CERTIFICATE_VARIABLES: [&str; 7] = [
    "PIP_CERT",
    "UV_NATIVE_TLS",
    "UV_SYSTEM_CERTS",
    "npm_config_ca",
    "npm_config_cafile",
    "npm_config_strict-ssl",
    "npm_config_strict_ssl",
];
/// The registry of npm, and that of a scope: `npm_config_@scope:registry`.
const NPM_REGISTRY: &str = "npm_config_registry";
const NPM_SCOPE: (&str, &str) = ("npm_config_@", ":registry");

/// The names in `CASES_PROVISION_ENV`, divided by commas.
pub fn names_of(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// The variables of `ours` that provisioning gets: those about indexes and certificates, and those that `named` names.
/// What holds credentials is left out, also if it is named: credentials are rules of the proxy.
pub fn selected_variables(
    ours: &BTreeMap<String, String>,
    named: &[String],
) -> BTreeMap<String, String> {
    let is_selected = |name: &String, value: &str| {
        named.contains(name) || is_about_packages(name) || is_place(name, value)
    };
    ours.iter()
        .filter(|(name, value)| is_selected(name, value) && is_for_install(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

/// Whether `name` is a variable whose URLs are those of indexes.
pub fn names_indexes(name: &str) -> bool {
    INDEX_VARIABLES.contains(&name)
        || PLACE_VARIABLES.contains(&name)
        || name == NPM_REGISTRY
        || is_scope(name)
}

fn is_about_packages(name: &str) -> bool {
    INDEX_VARIABLES.contains(&name)
        || CERTIFICATE_VARIABLES.contains(&name)
        || name == NPM_REGISTRY
        || is_scope(name)
}

fn is_place(name: &str, value: &str) -> bool {
    let mut places = value.split([',', ' ', '\t', '\n']).filter(|place| !place.is_empty());
    let is_url = |place: &str| place.starts_with("https://") || place.starts_with("http://");
    PLACE_VARIABLES.contains(&name) && places.all(is_url)
}

fn is_scope(name: &str) -> bool {
    name.starts_with(NPM_SCOPE.0) && name.ends_with(NPM_SCOPE.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provisioning_gets_indexes_certificates_and_what_is_named_but_no_credentials() {
        let named = names_of(" LANG_X, MY_TOKEN,,NAMED_URL,DB_PASSWORD,npm_config__auth ,HOME");
        for (name, value, is_passed) in [
            ("PIP_INDEX_URL", "https://i.example/simple", true),
            ("PIP_INDEX_URL", "https://user:word@i.example/simple", false),
            ("PIP_INDEX_URL", "https://token@i.example/simple", false),
            ("PIP_EXTRA_INDEX_URL", "https://a.example\nhttps://u:p@b.example", false),
            ("PIP_EXTRA_INDEX_URL", "https://a.example/x@1 https://b.example", true),
            ("PIP_NO_INDEX", "1", true),
            ("PIP_TRUSTED_HOST", "i.example", true),
            ("PIP_CERT", "/etc/ca.pem", true),
            ("PIP_CLIENT_CERT", "/etc/client.pem", false),
            ("PIP_FIND_LINKS", "https://i.example/wheels", true),
            ("PIP_FIND_LINKS", "/opt/wheels", false),
            ("PIP_FIND_LINKS", "https://i.example/wheels /opt/wheels", false),
            ("PIP_CACHE_DIR", "/var/cache", false),
            ("PIP_PROXY", "http://proxy.example", false),
            ("PIP_TARGET", "/opt", false),
            ("UV_DEFAULT_INDEX", "https://i.example/simple", true),
            ("UV_INDEX", "name=https://u:p@i.example/simple", false),
            ("UV_INDEX_PRIVATE_USERNAME", "u", false),
            ("UV_INDEX_PRIVATE_PASSWORD", "p", false),
            ("UV_PUBLISH_TOKEN", "t", false),
            ("UV_NATIVE_TLS", "1", true),
            ("UV_CACHE_DIR", "/var/cache", false),
            ("npm_config_registry", "https://n.example", true),
            ("npm_config_@scope:registry", "https://n.example", true),
            ("npm_config_//n.example/:_authToken", "t", false),
            ("npm_config__auth", "t", false),
            ("npm_config_cafile", "/etc/ca.pem", true),
            ("npm_config_prefix", "/opt", false),
            ("LANG_X", "C", true),
            ("MY_TOKEN", "t", false),
            ("DB_PASSWORD", "p", false),
            ("NAMED_URL", "ssh://git@g.example", false),
            ("NAMED_URL", "https://g.example", true),
            ("AWS_SECRET_ACCESS_KEY", "k", false),
            ("PATH", "/bin", false),
        ] {
            let ours = [(name.to_owned(), value.to_owned())].into();
            let passed = selected_variables(&ours, &named);
            assert_eq!(passed.contains_key(name), is_passed, "{name}={value}");
        }
        assert!(selected_variables(&BTreeMap::new(), &named).is_empty());
    }
}
