//! Agents over HTTP that ask a model, with a secret of the service.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::scene::{Scene, archive_of_case, follow, get, get_json, submit};
use crate::harness::endpoint::{Endpoint, asks, says};

const KEY: &str = "sk-of-the-service-0123456789";

#[test]
fn a_secret_of_the_service_reaches_its_endpoint_and_nothing_else() {
    let Some(scene) = Scene::new() else { return };
    let endpoint = Endpoint::new([
        asks(&[("bash", r#"{"command":"env; sed -i 's/a - b/a + b/' add.py; cat add.py"}"#)]),
        says("mended"),
    ]);
    let base_url = endpoint.base_url();
    let host = base_url.trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let secrets = scene.beside("secrets.toml");
    let table = format!("[model]\nfile = \"key\"\nhosts = [\"{host}\"]\ntokens = [\"one\"]\n");
    for (name, content) in [("secrets.toml", table.as_str()), ("key", KEY)] {
        let path = scene.beside(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    let service = scene
        .setup()
        .env("SECRETS_FILE", &secrets)
        .env("CASES_EGRESS_ALLOW", &host)
        .env("CASES_HOSTS_ALLOW", &host)
        .start();
    let yaml = format!(
        "id: fix-add\ntask: {{prompt: Mend add.}}\nsource: {{path: src}}\n\
         harnesses: {{chat: {{kind: openai, base_url: '{base_url}', secret: model, egress: ['{host}']}}}}\n\
         matrix: {{harnesses: [chat], models: [m]}}\n\
         graders:\n- type: command\n  cmd: python3 -c 'import add; assert add.add(1, 2) == 3'\n"
    );
    let id = submit(&service, "/v1/cases", archive_of_case("tar.gz", "", &yaml));
    let events = follow(&service, &id, "");
    let results = get(&service, &format!("/v1/cases/{id}/results")).body;
    let view = get_json(&service, &format!("/v1/cases/{id}"));
    assert_eq!((view["passed"].as_u64(), &view["status"]), (Some(1), &"done".into()), "{results}");
    let came = endpoint.came();
    let bearer = format!("Bearer {KEY}");
    assert_eq!(came.len(), 2, "{results}");
    assert!(came.iter().all(|one| one.header("authorization") == Some(bearer.as_str())));
    let report = get(&service, &format!("/v1/cases/{id}/report.html")).body;
    let trace = scene.run_dir(&id).join("cells/fix-add__chat__m__t1/trace.jsonl");
    let trace = fs::read_to_string(trace).unwrap();
    for (name, text) in
        [("events", &events), ("results", &results), ("report", &report), ("trace", &trace)]
    {
        assert!(!text.contains(KEY), "the key is in the {name}");
    }
    assert!(!service.log.text().contains(KEY), "the key is in the log");
}
