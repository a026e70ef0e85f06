//! The variables of a command in a container: the image's, and what differs.

use std::collections::BTreeMap;
use std::path::Path;

use cofferdam_sandbox::plan::PATH_DEFAULT;

const PATH: &str = "PATH";
/// The variable with the directory of the user.
pub(super) const HOME: &str = "HOME";

/// The variables of a command that changes none: those of the image and `passed`. An image without `PATH` and `HOME`
/// gets the usual `PATH`, and `home`.
pub(super) fn base_variables(
    image: &[String],
    passed: &BTreeMap<String, String>,
    home: &str,
) -> BTreeMap<String, String> {
    let defaults = [(PATH, PATH_DEFAULT), (HOME, home)];
    let defaults = defaults.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut variables = BTreeMap::from(defaults);
    let of_image = image.iter().filter_map(|variable| variable.split_once('='));
    variables.extend(of_image.map(|(name, value)| (name.to_owned(), value.to_owned())));
    variables.extend(passed.clone());
    variables
}

/// `base` with `changes`. A `PATH` that begins with the directory of the environment's programs is that directory
/// before the `PATH` of `base`, whose programs are those of the image.
pub(super) fn changed_variables(
    base: &BTreeMap<String, String>,
    changes: &BTreeMap<String, Option<String>>,
    env: &Path,
) -> BTreeMap<String, String> {
    let mut variables = base.clone();
    for (name, value) in changes {
        match value {
            None => drop(variables.remove(name)),
            Some(value) if name == PATH => {
                let path = changed_path(base.get(PATH).map_or("", String::as_str), value, env);
                variables.insert(name.clone(), path);
            }
            Some(value) => drop(variables.insert(name.clone(), value.clone())),
        }
    }
    variables
}

fn changed_path(of_image: &str, wanted: &str, env: &Path) -> String {
    let programs = env.join("bin").display().to_string();
    let is_of_env = wanted.split(':').next() == Some(programs.as_str());
    match (is_of_env, of_image) {
        (false, _) => wanted.to_owned(),
        (true, "") => programs,
        (true, of_image) => format!("{programs}:{of_image}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map<const N: usize>(pairs: [(&str, &str); N]) -> BTreeMap<String, String> {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
    }

    #[test]
    fn the_variables_of_the_image_are_the_base() {
        let image = ["PATH=/opt/bin:/bin".to_owned(), "A=1=2".to_owned(), "none".to_owned()];
        let base = base_variables(&image, &map([("B", "3")]), "/root");
        let wanted = [("A", "1=2"), ("B", "3"), ("HOME", "/root"), ("PATH", "/opt/bin:/bin")];
        assert_eq!(base, map(wanted));
        let bare = base_variables(&[], &BTreeMap::new(), "/h");
        assert_eq!(bare, map([("HOME", "/h"), ("PATH", PATH_DEFAULT)]));
    }

    #[test]
    fn the_programs_of_the_environment_come_before_those_of_the_image() {
        let base = map([("PATH", "/opt/bin:/bin"), ("HOME", "/root")]);
        for (path, wanted) in [
            ("/c/env/bin:/usr/bin:/bin", "/c/env/bin:/opt/bin:/bin"),
            ("/c/env/bin", "/c/env/bin:/opt/bin:/bin"),
            ("/c/env/binary:/bin", "/c/env/binary:/bin"),
            ("/only", "/only"),
        ] {
            let changes = [(PATH, Some(path)), (HOME, None), ("A", Some("1"))];
            let changes =
                changes.map(|(name, value)| (name.to_owned(), value.map(str::to_owned))).into();
            let found = changed_variables(&base, &changes, Path::new("/c/env"));
            assert_eq!(found, map([("PATH", wanted), ("A", "1")]), "{path}");
        }
    }
}
