//! A tenant that looks for traces of others.

use cofferdam_test_server::prestart::metric;
use cofferdam_test_server::service::{Service, wait_until};
use serde_json::{Value, json};

use super::scene::PATIENCE;
use crate::Unexercised;
use crate::observe::observed;
use crate::probe::Probe;
use crate::target::Target;

/// The runs that look and plant, one after another.
const TENANTS: usize = 4;

/// What a run finds. The only token in its memory is its own, which shows that it can find some.
#[track_caller]
fn look(service: &Service, slug: &str, tenant: usize) -> Value {
    let token = format!("planted-{tenant:032x}");
    let probe = Probe::python("warm_traces").arg(token.as_str());
    let found = observed(&service.post(&probe.body(slug)));
    assert_eq!(found["tokens"], json!([token]), "traces in memory");
    found
}

pub fn of_others(target: &Target) -> Result<(), Unexercised> {
    let own = target.own()?;
    let cold = own.another().env("PRESTART", "off").start();
    let new = look(&cold, target.slug(), 0);
    let warm = own.another().env("STANDBY_MAX", "2").start();
    look(&warm, target.slug(), 1);
    for tenant in 2..2 + TENANTS {
        wait_until("a runtime", PATIENCE, || metric(&warm, "boxes_ready") >= 1.0);
        let before = metric(&warm, "boxes_used_total");
        let found = look(&warm, target.slug(), tenant);
        assert!(metric(&warm, "boxes_used_total") > before, "the run began its own program");
        let differ = |(name, value): (&String, &Value)| {
            (found["look"][name] != *value)
                .then(|| format!("{name}: {} instead of {value}", found["look"][name]))
        };
        let differences: Vec<String> =
            new["look"].as_object().unwrap().iter().filter_map(differ).collect();
        assert!(differences.is_empty(), "{differences:#?}");
    }
    Ok(())
}
