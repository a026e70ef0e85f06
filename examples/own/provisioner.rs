//! Makes the environment of Cells in a way of one's own: modules that this process holds, in place of an index.
//!
//! `cargo run --example own_provisioner`, as root or as a user who may create user namespaces.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::time::Instant;

use cofferdam::cases::{
    CancelToken, Executor, OwnParts, ProvisionError, ProvisionRequest, ProvisionedEnvironment,
    Provisioner, TrialBench,
};
use cofferdam::jobs::enter_user_namespace;

const CASE: &str = "\
id: greet
task: {prompt: Greet.}
environment: {requirements: [greeting]}
matrix: {harnesses: [nop], models: [m], trials: 2}
graders:
- {type: command, cmd: python3 -c 'import greeting; assert greeting.TEXT == \"hello\"'}
";

/// Writes the required modules into the environment.
#[derive(Debug)]
struct HeldModules(BTreeMap<&'static str, &'static str>);

impl Provisioner for HeldModules {
    fn provision(
        &self,
        cell: &dyn Executor,
        request: &ProvisionRequest<'_>,
    ) -> Result<ProvisionedEnvironment, ProvisionError> {
        let began = Instant::now();
        let modules = request.places.env.join("modules");
        for name in &request.environment.requirements {
            let Some(text) = self.0.get(name.as_str()) else {
                let reason = format!("no module {name} is held here");
                return Err(ProvisionError::Network { reason });
            };
            let path = modules.join(format!("{name}.py"));
            cell.put(&path.display().to_string(), text.as_bytes(), 0o644)?;
        }
        let path = Some(modules.display().to_string());
        Ok(ProvisionedEnvironment {
            kind: request.environment.kind,
            env: BTreeMap::from([("PYTHONPATH".to_owned(), path)]),
            wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

/// Runs two trials, which share the environment, and writes to `out` what came of them.
fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let case = place.path().join("case");
    fs::create_dir_all(&case)?;
    fs::write(case.join("case.yaml"), CASE)?;

    let held = HeldModules(BTreeMap::from([("greeting", "TEXT = 'hello'\n")]));
    let own = OwnParts { provisioner: Some(Box::new(held)), ..OwnParts::default() };
    let bench = TrialBench::builder(&case, place.path().join("store")).own(own).build()?;
    for _ in 0..2 {
        let result = bench.run("nop", "m", &CancelToken::new()?)?;
        let provision = result.end.provision.as_ref().ok_or("no environment")?;
        writeln!(
            out,
            "{}: score {:?}, made before: {}",
            result.end.status.word(),
            result.end.overall_score,
            provision.shared
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_environment_is_made_once_and_graders_have_it() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let wanted = "\
done: score Some(1.0), made before: false
done: score Some(1.0), made before: true
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
