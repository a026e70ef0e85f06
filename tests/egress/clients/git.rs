//! git, with `git http-backend` behind the server.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use hyper::{Request, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

use super::host::{HostAnswer, answer_of};
use super::scene::{ClientScene, SECRET, added, held};

const USER: &str = "-c user.name=user -c user.email=user@clients.test";
/// The bytes of a file that is pushed: more than git sends in one piece.
const PUSHED_BYTES: usize = 2 << 20;

/// A bare repository with one commit, `repository.git`, in a directory of its own.
fn repository() -> TempDir {
    let directory = TempDir::new().unwrap();
    let script = format!(
        "set -e
         git init -q --bare -b main repository.git
         git init -q -b main seed
         cd seed
         echo first > file
         git add file
         git {USER} commit -qm first
         git push -q ../repository.git main"
    );
    assert!(git_shell(directory.path(), &script).status.success());
    directory
}

fn git_shell(directory: &Path, script: &str) -> std::process::Output {
    Command::new("sh").args(["-c", script]).current_dir(directory).output().unwrap()
}

/// What `git http-backend` answers.
fn backend(root: &Path, request: &Request<Bytes>) -> HostAnswer {
    let header = |name: &str| {
        let value = request.headers().get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("GIT_PROTOCOL", header("git-protocol"))
        // git http-backend accepts a push only from a named user.
        .env("REMOTE_USER", "user")
        .env("REQUEST_METHOD", request.method().as_str())
        .env("PATH_INFO", request.uri().path())
        .env("QUERY_STRING", request.uri().query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", request.body().len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stdin, body) = (child.stdin.take().unwrap(), request.body().clone());
    // It may answer before it has read everything.
    let feeder = thread::spawn(move || stdin.write_all(&body));
    let output = child.wait_with_output().unwrap().stdout;
    let _ = feeder.join().unwrap();
    answer_of_script(&output)
}

/// The answer that a CGI script prints.
fn answer_of_script(output: &[u8]) -> HostAnswer {
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&output[..end]).into_owned();
    let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let status = field("Status:").map_or(200, |status| status[..3].parse().unwrap());
    let kind = field("Content-Type:").unwrap_or("text/plain");
    answer_of(StatusCode::from_u16(status).unwrap(), kind, output[end + 4..].to_vec())
}

/// Answers requests with this `authorization` alone.
fn serve(root: &Path, authorization: &str, request: &Request<Bytes>) -> HostAnswer {
    let given = request.headers().get("authorization");
    if given.is_some_and(|value| value.as_bytes() == authorization.as_bytes()) {
        return backend(root, request);
    }
    let mut answer = answer_of(StatusCode::UNAUTHORIZED, "text/plain", "who are you?");
    let asked = "Basic realm=\"git\"".parse().unwrap();
    answer.headers_mut().insert("www-authenticate", asked);
    answer
}

/// Clones from `$URL` with `user` before its host, commits, pushes, and clones again, each time with this
/// `authorization`.
#[track_caller]
fn clones_and_pushes(rules: &Value, user: &str, authorization: &str) {
    let (directory, expected) = (repository(), authorization.to_owned());
    let root = directory.path().to_owned();
    let scene = ClientScene::start(rules, move |request| serve(&root, &expected, request));
    let Some(scene) = scene else { return };
    let mut script = format!("url=https://{user}${{URL#https://}}/repository.git\n");
    write!(
        script,
        "git clone -q $url copy
         cd copy
         cat file
         head -c {PUSHED_BYTES} /dev/urandom > big
         git add big
         git {USER} commit -qm second
         git push -q origin main
         git clone -q $url ../again
         cmp big ../again/big
         git rev-parse main"
    )
    .unwrap();
    let printed = scene.run(&script);
    let pushed = git_shell(&directory.path().join("repository.git"), "git rev-parse main");
    let pushed = String::from_utf8(pushed.stdout).unwrap();
    assert_eq!(printed, format!("first\n{pushed}"));
    let authorized = scene.host.seen().into_iter().filter(|request| {
        let given = request.headers.get("authorization");
        given.is_some_and(|value| value.as_bytes() == authorization.as_bytes())
    });
    let paths: Vec<String> = authorized.map(|request| request.path).collect();
    for wanted in ["/info/refs", "/git-upload-pack", "/git-receive-pack"] {
        assert!(paths.contains(&format!("/repository.git{wanted}")), "{paths:?}");
    }
    let config = directory.path().join("repository.git/config");
    assert!(!fs::read_to_string(config).unwrap().contains(SECRET));
}

#[test]
fn git_clones_and_pushes_with_a_secret_that_a_rule_adds() {
    clones_and_pushes(&added(), "", &format!("Bearer {SECRET}"));
}

#[test]
fn git_clones_and_pushes_with_a_placeholder_as_its_password() {
    let basic = STANDARD.encode(format!("user:{SECRET}"));
    clones_and_pushes(&held(), "user:$API_KEY@", &format!("Basic {basic}"));
}

/// Over HTTP/2 a push would hang now and then.
#[test]
fn git_speaks_http1_to_hosts_with_rules() {
    let directory = repository();
    let root = directory.path().to_owned();
    let secret = format!("Bearer {SECRET}");
    let scene = ClientScene::start(&added(), move |request| serve(&root, &secret, request));
    let Some(scene) = scene else { return };
    let script = "GIT_TRACE_CURL=1 git ls-remote $URL/repository.git 2>trace
         grep -o 'Send header: GET /.*' trace";
    let printed = scene.run(script);
    let sent = printed.lines().last().unwrap();
    let expected = "Send header: GET /repository.git/info/refs?service=git-upload-pack HTTP/1.1";
    assert_eq!(sent, expected, "{printed}");
}
