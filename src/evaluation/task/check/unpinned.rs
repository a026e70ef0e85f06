//! Install commands that get another version another day.

/// Options of pip whose value is the next word.
const PIP_VALUES: [&str; 12] = [
    "-r",
    "--requirement",
    "-c",
    "--constraint",
    "-e",
    "--editable",
    "-i",
    "--index-url",
    "--extra-index-url",
    "-f",
    "--find-links",
    "-t",
];

/// The packages in the shell command `command` that name no version.
pub fn unpinned_packages(command: &str) -> Vec<String> {
    let mut found = Vec::new();
    for part in command.split([';', '\n', '|', '&']) {
        let words: Vec<&str> =
            part.split_whitespace().map(|word| word.trim_matches(['"', '\''])).collect();
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            let program = word.rsplit('/').next().unwrap_or_default();
            let rest = || words.clone();
            match (program, rest().next()) {
                ("pip" | "pip3", Some("install")) => found.extend(of_pip(rest().skip(1))),
                ("npm", Some("install" | "i" | "add")) => {
                    found.extend(of_others(rest().skip(1), |word| {
                        word.get(1..).is_some_and(|name| name.contains('@'))
                    }));
                }
                ("gem", Some("install"))
                    if !rest().any(|word| word == "-v" || word.starts_with("--version")) =>
                {
                    found.extend(of_others(rest().skip(1), |word| word.contains(':')));
                }
                ("cargo", Some("install"))
                    if !rest().any(|word| word.starts_with("--version") || word == "--path") =>
                {
                    found.extend(of_others(rest().skip(1), |word| word.contains('@')));
                }
                ("go", Some("install" | "get")) => {
                    found.extend(
                        rest().skip(1).filter(|word| word.ends_with("@latest")).map(str::to_owned),
                    );
                }
                _ => continue,
            }
            break;
        }
    }
    found
}

fn of_pip<'a>(words: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut found = Vec::new();
    let mut is_value = false;
    for word in words {
        if is_value || word.starts_with('-') {
            is_value = !is_value && PIP_VALUES.contains(&word);
            continue;
        }
        // A path, a URL or a file is what it is; `pkg @ URL` too.
        let is_place = word.starts_with('.') || word.contains('/') || word.ends_with(".whl");
        if !is_place && !word.contains("==") && word != "@" && !word.starts_with('$') {
            found.push(word.to_owned());
        }
    }
    found
}

fn of_others<'a>(
    words: impl Iterator<Item = &'a str>,
    is_pinned: impl Fn(&str) -> bool,
) -> Vec<String> {
    words
        .filter(|word| !word.starts_with(['-', '.', '/', '$']) && !is_pinned(word))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_without_a_version_are_found() {
        for (command, want) in [
            ("pip install -e .", &[][..]),
            ("pip install pytest", &["pytest"]),
            ("python3 -m pip install --quiet 'a>=1' b==2 -r requirements.txt", &["a>=1"]),
            ("cd x && /usr/bin/pip3 install -i http://i/simple c; make", &["c"]),
            ("pip install ./wheels/a.whl https://x/y.tar.gz .[test]", &[]),
            ("npm install", &[]),
            ("npm ci", &[]),
            ("npm install left-pad @types/node@20.1.0 @types/jest", &["left-pad", "@types/jest"]),
            ("gem install rake", &["rake"]),
            ("gem install rake -v 13.0", &[]),
            ("cargo install ripgrep", &["ripgrep"]),
            ("cargo install ripgrep@14.1.0", &[]),
            ("go install example.com/x@latest", &["example.com/x@latest"]),
            ("go mod download", &[]),
            ("echo install pip", &[]),
        ] {
            assert_eq!(unpinned_packages(command), want, "{command}");
        }
    }
}
