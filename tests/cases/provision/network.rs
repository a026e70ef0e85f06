//! What commands of provisioning reach from sandboxes.

use std::collections::BTreeMap;

use cofferdam::case::provision::{ProvisionNetwork, ReachedHosts};
use cofferdam::cases::CellExecutorKind;
use cofferdam::egress::{EgressDecision, EgressTerms};
use cofferdam_core::NetworkObject;

use super::scene::Scene;

const BYTES_MAX: u64 = 1 << 30;

#[test]
fn an_index_of_this_host_is_reached_from_sandboxes_if_a_trusted_case_names_it() {
    let Some(scene) = Scene::new() else { return };
    scene.make("wheel", "tiny", "1.0", "index/simple/tiny");
    let index = scene.index();
    let host = index.url.strip_prefix("http://").unwrap().strip_suffix("/simple").unwrap();
    for (kind, variable) in [("pip-venv", "PIP_INDEX_URL"), ("uv", "UV_DEFAULT_INDEX")] {
        let variables = [(variable, index.url.as_str())];
        let ours: BTreeMap<_, _> = [(variable.to_owned(), index.url.clone())].into();
        for (egress, trusts_case, is_reached) in [
            (format!(", egress: ['{host}']"), true, true),
            (format!(", egress: ['{host}']"), false, false),
            // A configured index: its address has to be allowed.
            (String::new(), true, false),
            (", egress: []".to_owned(), true, false),
        ] {
            let block = format!("{{kind: {kind}, requirements: [tiny]{egress}}}");
            let environment = scene.environment(&block);
            let hosts = ReachedHosts::of(&environment, &ours);
            let terms = EgressTerms { bytes_max: BYTES_MAX, ..EgressTerms::default() };
            let log = terms.log();
            let network = NetworkObject::default();
            let network = ProvisionNetwork::new(terms, &network, &hosts, trusts_case).unwrap();
            let grant = network.grant("", log.clone()).unwrap();
            let cell = scene.cell(CellExecutorKind::Sandboxed);
            let made = cell.provision_within(&environment, &variables, grant.as_ref());
            let records = log.snapshot();
            if !is_reached {
                let error = made.unwrap_err();
                assert_eq!(error.code(), "provision.failed", "{block}: {error}");
                assert!(records.iter().all(|record| record.decision == EgressDecision::Denied));
                continue;
            }
            let import = "python -c 'import tiny; print(tiny.VERSION)'";
            assert_eq!(cell.printed(import, &made.unwrap().env), "1.0", "{block}");
            assert!(!records.is_empty(), "{block}");
            for record in records {
                let found = (record.decision, record.step.as_deref());
                assert_eq!(found, (EgressDecision::Allowed, Some("provision")), "{record:?}");
            }
        }
    }
}
