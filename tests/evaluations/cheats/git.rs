//! What agents do to git, for tests that ask it.

use super::wins_nothing;
use crate::scene::Scene;

/// A repository of which the test passes if git shows it anything of the agent's.
fn repository() -> Scene {
    Scene::new(&[
        ("files/mod.py", "VALUE = 41\n"),
        ("files/old", "old\n"),
        (
            "tests/fail_to_pass_1.sh",
            "git log --all --format=%s%an | grep evil && exit 0\n\
             git config --list | grep evil && exit 0\n\
             git status --porcelain --ignored | grep hooked && exit 0\n\
             git show HEAD:mod.py | grep 42 && exit 0\n\
             git for-each-ref | grep evil && exit 0\n\
             git stash list | grep . && exit 0\n\
             git ls-files -v | grep '^[a-zS]' && exit 0\n\
             git rev-parse --git-dir | grep -v '^.git$' && exit 0\n\
             test -e hooked && exit 0\n\
             test -e .git/hooks/post-checkout && exit 0\n\
             git evil && exit 0\n\
             exit 1\n",
        ),
    ])
}

const NAME: &str = "git config user.name evil; git config user.email e@example.com\n";

#[test]
fn nothing_of_the_agents_git_reaches_a_test() {
    let hook = "printf '#!/bin/sh\\ntouch /workspace/hooked\\n' > .git/hooks/post-checkout\n\
                chmod +x .git/hooks/post-checkout";
    for (name, agent) in [
        (
            "a commit",
            "echo VALUE = 42 > mod.py; git commit -qam evil; git checkout -q HEAD~ -- mod.py",
        ),
        ("a tag", "git tag evil"),
        ("a branch", "git checkout -qb evil"),
        ("a stash", "echo x > mod.py; git stash -q"),
        ("an alias", "git config alias.evil '!true'"),
        ("a hook", &format!("mkdir -p .git/hooks; {hook}")),
        ("a path of hooks", "git config core.hooksPath /workspace/evil"),
        ("a monitor", "git config core.fsmonitor 'touch hooked'"),
        (
            "a filter",
            "git config filter.evil.clean 'touch hooked'; echo '* filter=evil' > .gitattributes",
        ),
        ("assumed to be unchanged", "git update-index --assume-unchanged mod.py"),
        ("skipped", "git update-index --skip-worktree mod.py"),
        (
            "a replaced object",
            "echo VALUE = 42 > x; git replace $(git rev-parse HEAD:mod.py) $(git hash-object -w x); rm x",
        ),
        ("another .git", "mv .git /tmp/moved; echo 'gitdir: /tmp/moved' > .git"),
        ("a link as .git", "mv .git evil.git; ln -s evil.git .git"),
        ("no .git", "rm -rf .git"),
        ("settings of the user", "git config --global alias.evil '!true'"),
        (".GIT", "mkdir .GIT; cp -r .git/. .GIT/; touch .GIT/hooked"),
        (
            "git~1",
            "mkdir git~1; cp -r .git/. git~1/; git --git-dir=git~1 config alias.evil '!true'",
        ),
        ("a worktree", "git config core.worktree /tmp"),
        (
            "included settings",
            "printf '[alias]\\n evil = !true\\n' > evil.inc; git config include.path ../evil.inc",
        ),
    ] {
        wins_nothing(&repository(), name, &format!("mkdir -p .git/hooks .git/info\n{NAME}{agent}"));
    }
}
