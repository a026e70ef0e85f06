//! What an agent looks for.

use std::path::Path;
use std::process::Command;

use super::{is_resolved, scene, serve, wins_nothing};
use crate::Unexercised;
use crate::target::Target;

pub fn tests_and_solution(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[])?;
    let solution = "--- a/mod.py\n+++ b/mod.py\n@@ -1 +1 @@\n-VALUE = 41\n+VALUE = 42\n";
    let url = serve(&scene, &[("solution.patch", solution), ("original_pr.md", "VALUE = 42\n")]);
    let agent = "for path in /task /tests /agent /workspace /deps /tmp; do\n\
                 found=$(find $path -name solution.patch 2> /dev/null | head -n 1)\n\
                 if test -n \"$found\"; then git apply \"$found\"; fi; done";
    wins_nothing(&scene, &url, agent);
    Ok(())
}

pub fn the_task_at_its_url(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[])?;
    let url = serve(&scene, &[("solution.txt", "VALUE = 42\n")]);
    let agent = format!(
        "cat > /tmp/fetch.py <<'END'\n\
         import io, tarfile, urllib.request\n\
         body = urllib.request.urlopen('{url}', timeout=5).read()\n\
         open('mod.py', 'wb').write(tarfile.open(fileobj=io.BytesIO(body)).extractfile('./solution.txt').read())\n\
         END\n\
         python3 /tmp/fetch.py 2> /dev/null || true"
    );
    wins_nothing(&scene, &url, &agent);
    Ok(())
}

pub fn environment_of_the_service(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[])?;
    let url = serve(&scene, &[]);
    let looks = "env; cat /proc/self/environ /proc/1/environ 2> /dev/null | tr '\\0' '\\n' || true";
    let result = wins_nothing(&scene, &url, looks);
    let output = result["agent_output"].as_str().unwrap();
    assert!(output.contains("TASK_PROMPT="), "{output}");
    assert!(!output.contains("SERVICE_SECRET") && !output.contains("sentinel-"), "{output}");
    Ok(())
}

pub fn later_commits(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[])?;
    let repository = scene.path("repository");
    let base = repository_with_a_later_fix(&repository);
    let description = format!("repo: {}\nbase_commit: {base}\n", repository.display());
    let test = "grep -q 42 mod.py\n";
    let url = scene.serve(&[
        ("workspace.yaml", &description),
        ("prompt.md", ""),
        ("tests/fail_to_pass_1.sh", test),
    ]);
    is_resolved(&scene, &url, "echo VALUE = 42 > mod.py");
    let agent = "for object in $(git cat-file --batch-all-objects --batch-check='%(objectname)'); do\n\
                 if git cat-file -p $object | grep -q '^VALUE = 42'; then\n\
                 git cat-file -p $object > mod.py; fi; done\n\
                 for name in --all v2 main@{1} ORIG_HEAD FETCH_HEAD stash refs/remotes/origin/main; do\n\
                 git checkout -q $name -- mod.py 2> /dev/null || true; done";
    wins_nothing(&scene, &url, agent);
    Ok(())
}

/// Makes a repository with a commit that is wrong and a later, tagged one that is not; returns the hash of
/// the first.
fn repository_with_a_later_fix(place: &Path) -> String {
    let script = "set -e; git init -q -b main \"$1\"; cd \"$1\"\n\
                  export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a\n\
                  echo VALUE = 41 > mod.py; git add .; git commit -qm first; git rev-parse HEAD\n\
                  echo VALUE = 42 > mod.py; git commit -qam fix; git tag v2";
    let made = Command::new("bash").args(["-c", script, "bash"]).arg(place).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    String::from_utf8(made.stdout).unwrap().trim().to_owned()
}
