//! The rule on the environment: the request or the runner must allow each variable.

use std::collections::BTreeSet;

use cofferdam_core::job::{ErrorCode, JobError};

/// Variables that change what programs load, run or trust. A name that ends with `_` is a prefix.
const DANGEROUS: &[&str] = &[
    // The dynamic loader and the C library.
    "LD_",
    "DYLD_",
    "MALLOC_",
    "GCONV_PATH",
    "GLIBC_TUNABLES",
    "GETCONF_DIR",
    "LOCPATH",
    "NLSPATH",
    "TZDIR",
    "RES_OPTIONS",
    "RESOLV_HOST_CONF",
    "HOSTALIASES",
    "LOCALDOMAIN",
    "NIS_PATH",
    // Shells, and what programs pass on to shells.
    "PATH",
    "HOME",
    "IFS",
    "ENV",
    "BASH_ENV",
    "BASH_FUNC_",
    "BASHOPTS",
    "SHELLOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "CDPATH",
    "FPATH",
    "ZDOTDIR",
    "SHELL",
    // Programs that other programs start.
    "EDITOR",
    "VISUAL",
    "PAGER",
    "MANPAGER",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "GIT_",
    "MAKEFLAGS",
    "MAKEFILES",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    // Interpreters.
    "PYTHONSTARTUP",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONUSERBASE",
    "PYTHONINSPECT",
    "PYTHONBREAKPOINT",
    "PYTHONWARNINGS",
    "NODE_OPTIONS",
    "NODE_PATH",
    "NODE_EXTRA_CA_CERTS",
    "PERL5OPT",
    "PERL5LIB",
    "PERLLIB",
    "PERL5DB",
    "RUBYOPT",
    "RUBYLIB",
    "GEM_HOME",
    "GEM_PATH",
    "BUNDLE_GEMFILE",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "CLASSPATH",
    "MAVEN_OPTS",
    "GRADLE_OPTS",
    "LUA_INIT",
    "LUA_PATH",
    "LUA_CPATH",
    "PHPRC",
    "PHP_INI_SCAN_DIR",
    "DOTNET_STARTUP_HOOKS",
    "CORECLR_",
    "ERL_FLAGS",
    "R_PROFILE",
    "R_PROFILE_USER",
    // Where libraries find settings, terminal descriptions and modules.
    "TERMINFO",
    "TERMINFO_DIRS",
    "TERMCAP",
    "OPENSSL_CONF",
    "OPENSSL_MODULES",
    "KRB5_CONFIG",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// Whether a decision lists this variable if it is given.
pub(super) fn is_dangerous(name: &str) -> bool {
    DANGEROUS.iter().any(|rule| *rule == name || (rule.ends_with('_') && name.starts_with(rule)))
}

/// Refuses the first variable that neither the request nor the runner allows.
pub(super) fn check<'a>(
    mut given: impl Iterator<Item = &'a String>,
    by_request: &[String],
    by_runner: &BTreeSet<String>,
) -> Result<(), JobError> {
    let is_allowed = |name: &String| by_request.contains(name) || by_runner.contains(name);
    match given.find(|name| !is_allowed(name)) {
        None => Ok(()),
        Some(name) => {
            let message = "environment variable is not allowed by policy";
            Err(JobError::new(ErrorCode::EnvDenied, message).with("key", name.as_str()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_that_change_what_programs_do_are_dangerous() {
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "DYLD_INSERT_LIBRARIES",
            "BASH_ENV",
            "ENV",
            "PATH",
            "HOME",
            "IFS",
            "BASH_FUNC_x%%",
            "PYTHONPATH",
            "NODE_OPTIONS",
            "PERL5OPT",
            "RUBYOPT",
            "_JAVA_OPTIONS",
            "GIT_SSH_COMMAND",
            "EDITOR",
            "MALLOC_CHECK_",
            "GLIBC_TUNABLES",
            "HOSTALIASES",
            "SHELLOPTS",
        ] {
            assert!(is_dangerous(name), "{name}");
        }
        for name in ["LANG", "TZ", "LD", "MYPATH", "PATHS", "ENVIRONMENT", "GITHUB_SHA", "ld_x"] {
            assert!(!is_dangerous(name), "{name}");
        }
    }
}
