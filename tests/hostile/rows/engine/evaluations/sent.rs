//! What those send who ask for evaluations, and what they read.

use std::fs;
use std::process::Command;

use cofferdam_test_server::client::request;
use cofferdam_test_server::evaluations::{WANTS_DONE, shell_agent};
use serde_json::{Value, json};

use super::{is_resolved, scene, serve, wins_nothing};
use crate::Unexercised;
use crate::target::Target;

const SECRET: &str = "value-of-an-agent-0123";

pub fn secret_values(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[])?;
    let url = serve(&scene, &[("tests/fail_to_pass_1.sh", "cat told; exit 1\n")]);
    let agent = "echo $KEY; printf %s \"${KEY:0:9}\"; sleep 0.1; echo \"${KEY:9}\"; echo $KEY >&2\n\
                 echo $KEY > told";
    let mut body = shell_agent(&url, agent);
    body["agent_env"] = json!({ "KEY": SECRET });
    let id = scene.begin(&body);
    let mut result = scene.end(&id);
    assert_eq!(result["agent_output"].as_str().unwrap().matches("[redacted]").count(), 3);
    // The patch is the agent's work as it is.
    result["agent_patch"] = Value::Null;
    assert!(!result.to_string().contains(SECRET), "{result:#}");
    let mut client = scene.service.connect();
    client.send(format!("GET /evaluate/{id}/events HTTP/1.0\r\n\r\n"));
    assert_eq!(client.head().status, 200);
    let events = client.rest_text();
    let (outputs, _) = events.split_once("event: result").unwrap();
    assert!(outputs.contains("[redacted]") && !outputs.contains(SECRET), "{outputs}");
    Ok(())
}

pub fn too_large_a_patch(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[("EVAL_PATCH_MAX", "64KiB")])?;
    let url = serve(&scene, &[]);
    is_resolved(&scene, &url, "echo 'VALUE = 42' > mod.py");
    let agent = "echo 'VALUE = 42' > mod.py; head -c 128K /dev/urandom > large";
    let result = wins_nothing(&scene, &url, agent);
    assert_eq!(result["failure"]["code"], "patch.too_large", "{result:#}");
    Ok(())
}

pub fn unsafe_archives(target: &Target) -> Result<(), Unexercised> {
    let scene = scene(target, &[])?;
    let url = scene.serve(&WANTS_DONE);
    is_resolved(&scene, &url, "touch done");
    let name = url.rsplit('/').next().unwrap();
    let archive = scene.path("served").join(name);
    let outside = scene.path("outside");
    let append = "import io, sys, tarfile\n\
                  archive = tarfile.open(sys.argv[1], 'a')\n\
                  entry = tarfile.TarInfo(sys.argv[2])\n\
                  entry.type, entry.linkname = sys.argv[3].encode(), '/etc/passwd'\n\
                  text = b'true\\n' if sys.argv[3] == '0' else b''\n\
                  entry.size = len(text)\n\
                  archive.addfile(entry, io.BytesIO(text))\n\
                  archive.close()\n";
    let clean = fs::read(&archive).unwrap();
    for (entry, kind, reason) in [
        ("tests/fail_to_pass_1.sh", "0", "duplicate"),
        ("tests/link", "2", "link"),
        ("tests/linked", "1", "link"),
        ("../outside", "0", "traversal"),
        (outside.to_str().unwrap(), "0", "absolute"),
        ("tests/fifo", "6", "device"),
    ] {
        fs::write(&archive, &clean).unwrap();
        let args = ["-c", append, archive.to_str().unwrap(), entry, kind];
        assert!(Command::new("python3").args(args).status().unwrap().success());
        let mut body = shell_agent(&url, "touch done");
        body["fresh"] = json!(true);
        let result = scene.evaluate(&body);
        assert_eq!(result["verdict"], "infra_error", "{entry}: {result:#}");
        let failure = &result["failure"];
        assert_eq!(failure["code"], "task.unsafe_archive", "{entry}: {failure}");
        assert_eq!(failure["details"]["reason"], reason, "{entry}: {failure}");
        assert_eq!(result["agent"], Value::Null, "{entry}");
        assert!(!outside.exists(), "{entry}");
    }
    Ok(())
}

const TOKENS: &str = "one first-token-0123456789\ntwo second-token-0123456789\n";

pub fn evaluations_of_another_token(target: &Target) -> Result<(), Unexercised> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tokens");
    fs::write(&file, TOKENS).unwrap();
    let scene = scene(target, &[("AUTH_TOKENS_FILE", file.to_str().unwrap())])?;
    let url = scene.serve(&WANTS_DONE);
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        let headers = format!(
            "authorization: Bearer {token}-token-0123456789\r\ncontent-length: {}\r\n",
            body.len()
        );
        scene.service.ask(request(method, path, &headers) + body)
    };
    let begun = ask("first", "POST", "/evaluate", &shell_agent(&url, "sleep 60").to_string());
    assert_eq!(begun.status, 202, "{begun:?}");
    let id: Value = serde_json::from_str(&begun.body).unwrap();
    let path = format!("/evaluate/{}", id["eval_id"].as_str().unwrap());
    let absent = "/evaluate/0e8e1f84-7c6f-4a55-9d6c-0c4a1f1d2b3c";
    for (method, below) in
        [("GET", ""), ("GET", "/patch"), ("GET", "/junit.xml"), ("GET", "/events"), ("DELETE", "")]
    {
        let theirs = ask("second", method, &format!("{path}{below}"), "");
        let nothing = ask("second", method, &format!("{absent}{below}"), "");
        assert_eq!((theirs.status, &theirs.body), (404, &nothing.body), "{method} {below}");
    }
    assert_eq!(ask("second", "GET", "/evaluations", "").body, "[]");
    let own: Value = serde_json::from_str(&ask("first", "GET", &path, "").body).unwrap();
    assert_eq!(own["verdict"], Value::Null, "{own}");
    assert_eq!(ask("first", "DELETE", &path, "").status, 202);
    Ok(())
}
