//! Tries an agent of one's own in a Cell: a harness that is a loop in this process, with the Cell's files as its hands.
//!
//! `cargo run --example own_harness`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use cofferdam::cases::{
    AgentSummary, CancelToken, ExecRequest, Executor, Harness, HarnessCall, HarnessEnd,
    HarnessError, OwnParts, TrialBench,
};
use cofferdam::jobs::enter_user_namespace;
use serde_json::json;

const CASE: &str = "\
id: fix-add
task: {prompt: Make `python3 check.py` succeed.}
source: {path: src}
matrix: {harnesses: [nop], models: [m]}
graders:
- {type: command, cmd: python3 check.py}
";

/// Tries one operator after the other until the check succeeds.
#[derive(Debug)]
struct OperatorSearch;

impl Harness for OperatorSearch {
    fn work(
        &self,
        cell: &dyn Executor,
        call: &HarnessCall<'_>,
    ) -> Result<HarnessEnd, HarnessError> {
        let began = Instant::now();
        let mut output = format!("asked: {}\n", call.prompt.prompt);
        let mut exit_code = 1;
        for operator in ["*", "+", "/"] {
            let program = format!("def add(a, b): return a {operator} b\n");
            cell.put("add.py", program.as_bytes(), 0o644)?;
            let check = ExecRequest {
                // Without -B, Python would take the compiled form of the last try for this one.
                env: call.env.clone(),
                timeout: call.deadline.remaining(),
                ..ExecRequest::new(["python3", "-B", "check.py"])
            };
            let ended = cell.run(&check)?;
            output.push_str(&format!("{operator}: {:?}\n", ended.exit_code));
            call.trace.write(&json!({"event": "tried", "operator": operator}));
            if ended.exit_code == Some(0) {
                exit_code = 0;
                break;
            }
        }
        let agent = AgentSummary {
            outcome: "exited",
            exit_code: Some(exit_code),
            wall_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            tokens: None,
            cost_usd: None,
        };
        Ok(HarnessEnd { agent, output })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

/// Runs a trial and writes to `out` what the agent said and what it scored.
fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let case = place.path().join("case");
    fs::create_dir_all(case.join("src"))?;
    fs::write(case.join("case.yaml"), CASE)?;
    fs::write(case.join("src/add.py"), "def add(a, b): return a - b\n")?;
    fs::write(case.join("src/check.py"), "import add\nassert add.add(1, 2) == 3\n")?;

    let own = OwnParts { harness: Some(Arc::new(OperatorSearch)), ..OwnParts::default() };
    let bench = TrialBench::builder(&case, place.path().join("store")).own(own).build()?;
    let result = bench.run("operator-search", "none", &CancelToken::new()?)?;

    let (id, end) = (&result.cell.id, &result.end);
    writeln!(out, "{id}: {}, score {:?}", end.status.word(), end.overall_score)?;
    for run in fs::read_dir(place.path().join("store/cases"))? {
        let said = run?.path().join("cells").join(id).join("output.txt");
        write!(out, "{}", fs::read_to_string(said)?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_harness_works_in_the_cell_until_the_check_succeeds() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let wanted = "\
fix-add__operator-search__none__t1: done, score Some(1.0)
asked: Make `python3 check.py` succeed.
*: Some(1)
+: Some(0)
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
