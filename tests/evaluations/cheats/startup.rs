//! Programs and files that act before the test does.

use super::{program, wins_nothing};

/// Ends every Python that reads it as if its test had passed.
const EXIT: &str = "'import os; os._exit(0)'";

fn all_win_nothing(cheats: &[(&str, String)]) {
    for (name, agent) in cheats {
        wins_nothing(&program(), name, agent);
    }
}

#[test]
fn files_that_python_reads_at_its_start_do_not_reach_the_test() {
    let site = "$(python3 -c 'import site; print(site.getusersitepackages())')";
    all_win_nothing(&[
        ("sitecustomize", format!("echo {EXIT} > sitecustomize.py")),
        ("usercustomize", format!("mkdir -p {site}; echo {EXIT} > {site}/usercustomize.py")),
        (".pth of the user", format!("mkdir -p {site}; echo {EXIT} > {site}/x.pth")),
        (
            ".pth of the environment",
            format!(
                "at=$(echo /deps/venv/lib/python3*/site-packages); mkdir -p \"$at\"\n\
                 echo {EXIT} > \"$at/x.pth\""
            ),
        ),
        (
            "entry points of a plugin",
            format!(
                "mkdir x.dist-info; printf '[pytest11]\\nx = plug\\n' > x.dist-info/entry_points.txt\n\
                 printf 'Name: x\\nVersion: 1\\n' > x.dist-info/METADATA; echo {EXIT} > plug.py"
            ),
        ),
        ("unittest as a package", {
            let both = "unittest/__init__.py unittest/__main__.py";
            format!("mkdir unittest; echo {EXIT} | tee {both}")
        }),
        (
            "stale bytecode",
            "printf 'VALUE = 42\\n' > right.py\n\
             python3 -c 'import py_compile as p, importlib.util as u; \
             p.compile(\"right.py\", u.cache_from_source(\"mod.py\"), \
             invalidation_mode=p.PycInvalidationMode.UNCHECKED_HASH)'\n\
             rm right.py; test \"$(python3 -c 'import mod; print(mod.VALUE)')\" = 42"
                .to_owned(),
        ),
    ]);
}

#[test]
fn programs_that_stand_first_on_path_do_not_reach_the_test() {
    let fake = |directory: &str| {
        format!(
            "mkdir -p {directory}; rm -f {directory}/python3\n\
             printf '#!/bin/sh\\nexit 0\\n' > {directory}/python3; chmod +x {directory}/python3"
        )
    };
    all_win_nothing(&[
        ("of /deps/bin", fake("/deps/bin")),
        ("of the environment", fake("/deps/venv/bin")),
        ("of npm", fake("/deps/npm/bin")),
        ("of the user", fake("/tmp/home/.local/bin")),
        ("of the repository", fake("/workspace")),
    ]);
}

#[test]
fn settings_of_shells_and_loaders_do_not_reach_the_test() {
    let of_home = |name: &str| format!("mkdir -p ~; echo 'exit 0' > ~/{name}");
    all_win_nothing(&[
        (".bashrc", of_home(".bashrc")),
        (".profile", of_home(".profile")),
        (".bash_profile", of_home(".bash_profile")),
        ("BASH_ENV", "echo 'exit 0' > env.sh; export BASH_ENV=/workspace/env.sh".to_owned()),
        ("LD_PRELOAD", "export LD_PRELOAD=/workspace/x.so; echo x > x.so".to_owned()),
        (
            "ld.so.preload",
            "if (echo /workspace/x.so > /etc/ld.so.preload) 2> /dev/null; then exit 1; fi"
                .to_owned(),
        ),
        ("PYTHONPATH", format!("mkdir p; echo {EXIT} > p/mod.py; export PYTHONPATH=/workspace/p")),
    ]);
}
