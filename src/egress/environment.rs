//! What tells programs in a sandbox that there is a proxy.

/// HOME of a sandbox's programs.
const HOME: &str = "/tmp/home";
/// The hosts that are reached without the proxy.
const LOOPBACK_HOSTS: &str = "localhost,127.0.0.1,::1";
/// The same for Java's properties.
const LOOPBACK_HOSTS_JAVA: &str = "localhost|127.*|[::1]";
/// Variables that hold the proxy's URL, in lower case. Programs differ in the case that they read.
const PROXY_VARIABLES: [&str; 4] = ["http_proxy", "https_proxy", "all_proxy", "ftp_proxy"];
/// Variables of single programs that hold it: pip, npm, yarn, cargo.
const PROGRAM_VARIABLES: [&str; 6] = [
    "PIP_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "CARGO_HTTP_PROXY",
];

/// How git speaks to hosts with rules. Over HTTP/2 a push of git 2.39 can hang for ever, with or without a proxy:
/// libcurl may ask once more for a body that has ended, and git then waits for more of it.
const GIT_SETTINGS: [(&str, &str); 1] = [("http.version", "HTTP/1.1")];

/// Returns the variables that name the proxy at `port` of the loopback. With `loopback_allowed` requests
/// to the loopback go to the proxy too.
pub fn proxy_environment(port: u16, loopback_allowed: bool) -> Vec<(String, String)> {
    let url = format!("http://127.0.0.1:{port}");
    let without = if loopback_allowed { "" } else { LOOPBACK_HOSTS };
    let mut variables = Vec::new();
    let mut set = |name: &str, value: &str| variables.push((name.to_owned(), value.to_owned()));
    for name in PROXY_VARIABLES {
        set(name, &url);
        set(&name.to_ascii_uppercase(), &url);
    }
    for name in PROGRAM_VARIABLES {
        set(name, &url);
    }
    for name in ["no_proxy", "NO_PROXY", "npm_config_noproxy"] {
        set(name, without);
    }
    set("NODE_USE_ENV_PROXY", "1");
    set("JAVA_TOOL_OPTIONS", &java_options(port, loopback_allowed));
    variables
}

/// Returns the variables by which programs ask hosts with rules without fault.
pub fn ruled_environment() -> Vec<(String, String)> {
    let mut variables = vec![("GIT_CONFIG_COUNT".to_owned(), GIT_SETTINGS.len().to_string())];
    for (number, (key, value)) in GIT_SETTINGS.into_iter().enumerate() {
        variables.push((format!("GIT_CONFIG_KEY_{number}"), key.to_owned()));
        variables.push((format!("GIT_CONFIG_VALUE_{number}"), value.to_owned()));
    }
    variables
}

fn java_options(port: u16, loopback_allowed: bool) -> String {
    let properties = java_properties(port, loopback_allowed);
    // Java asks the list of users for HOME, in which a sandbox's user is not. Maven's settings are there.
    let home = format!("-Duser.home={HOME}");
    let options = properties.iter().map(|(name, value)| format!("-D{name}={value}"));
    std::iter::once(home).chain(options).collect::<Vec<_>>().join(" ")
}

fn java_properties(port: u16, loopback_allowed: bool) -> Vec<(&'static str, String)> {
    let without = if loopback_allowed { "" } else { LOOPBACK_HOSTS_JAVA };
    vec![
        ("http.proxyHost", "127.0.0.1".to_owned()),
        ("http.proxyPort", port.to_string()),
        ("https.proxyHost", "127.0.0.1".to_owned()),
        ("https.proxyPort", port.to_string()),
        ("http.nonProxyHosts", without.to_owned()),
    ]
}

/// Returns the files below HOME that name the proxy, for programs that read no variable: Maven's and
/// Gradle's.
pub fn proxy_files(port: u16, loopback_allowed: bool) -> [(&'static str, String); 2] {
    let without = if loopback_allowed { "" } else { LOOPBACK_HOSTS_JAVA };
    let proxy = |protocol: &str| {
        format!(
            "<proxy><id>{protocol}</id><active>true</active><protocol>{protocol}</protocol>\
             <host>127.0.0.1</host><port>{port}</port><nonProxyHosts>{without}</nonProxyHosts></proxy>"
        )
    };
    let maven =
        format!("<settings><proxies>{}{}</proxies></settings>\n", proxy("http"), proxy("https"));
    let gradle: String = java_properties(port, loopback_allowed)
        .iter()
        .map(|(name, value)| format!("systemProp.{name}={value}\n"))
        .collect();
    [(".m2/settings.xml", maven), (".gradle/gradle.properties", gradle)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_program_finds_the_proxy() {
        let variables: BTreeMap<String, String> =
            proxy_environment(3128, false).into_iter().collect();
        for name in
            ["http_proxy", "HTTPS_PROXY", "ALL_PROXY", "PIP_PROXY", "npm_config_https_proxy"]
        {
            assert_eq!(variables[name], "http://127.0.0.1:3128", "{name}");
        }
        assert_eq!(variables["NODE_USE_ENV_PROXY"], "1");
        let java = &variables["JAVA_TOOL_OPTIONS"];
        assert!(
            java.contains("-Duser.home=/tmp/home -D") && java.contains("-Dhttps.proxyPort=3128 ")
        );
        for (name, text) in proxy_files(3128, false) {
            assert!(text.contains("127.0.0.1") && text.contains("3128"), "{name}");
        }
    }

    #[test]
    fn the_loopback_is_reached_without_the_proxy_unless_it_is_allowed() {
        for (loopback_allowed, expected) in [(false, "localhost,127.0.0.1,::1"), (true, "")] {
            let variables = proxy_environment(1, loopback_allowed);
            for name in ["no_proxy", "NO_PROXY"] {
                let value = variables.iter().find(|(known, _)| known == name);
                assert_eq!(value.unwrap().1, expected, "{name}");
            }
        }
    }
}
