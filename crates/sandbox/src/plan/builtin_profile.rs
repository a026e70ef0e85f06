//! The builtin profiles, compiled by the build script: to parse and compile their texts takes longer
//! than a whole run.

use cofferdam_seccomp::filter::{Filter, Instruction};
use cofferdam_seccomp::profile::{Profile, ProfileError, RootView};

/// A profile as the build script writes it.
struct BuiltinProfile {
    name: &'static str,
    description: &'static str,
    program: &'static [Instruction],
    writable_binds_program: &'static [Instruction],
    hide: &'static [&'static str],
    keep: &'static [&'static str],
    devices: &'static [&'static str],
    proc_mask: &'static [&'static str],
}

include!(concat!(env!("OUT_DIR"), "/profiles.rs"));

/// Returns the builtin profile `name`.
///
/// # Errors
/// [`ProfileError::UnknownProfile`] if no profile has that name; [`Profile::builtin_names`] lists
/// all names.
pub fn builtin_profile(name: &str) -> Result<Profile, ProfileError> {
    let compiled = COMPILED.iter().find(|compiled| compiled.name == name);
    let compiled = compiled.ok_or_else(|| ProfileError::UnknownProfile(name.into()))?;
    let owned = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect();
    let filter = |program: &[_]| Filter { name: name.to_owned(), program: program.to_vec() };
    Ok(Profile {
        name: name.to_owned(),
        description: compiled.description.to_owned(),
        filter: filter(compiled.program),
        writable_binds_filter: filter(compiled.writable_binds_program),
        root: RootView {
            hide: owned(compiled.hide),
            keep: owned(compiled.keep),
            devices: owned(compiled.devices),
            proc_mask: owned(compiled.proc_mask),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cofferdam_seccomp::syscalls::Arch;

    #[test]
    fn every_builtin_profile_equals_its_compiled_text() {
        let names: Vec<_> = Profile::builtin_names().collect();
        assert_eq!(names, ["default", "init", "network", "strict-native"]);
        for name in names {
            let compiled_now = Profile::parse_builtin(Arch::NATIVE, name).unwrap();
            assert_eq!(builtin_profile(name).unwrap(), compiled_now);
        }
        assert!(matches!(builtin_profile("Default"), Err(ProfileError::UnknownProfile(_))));
    }
}
