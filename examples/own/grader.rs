//! Grades the work of agents by a measure of one's own: how many lines a Cell's files have.
//!
//! `cargo run --example own_grader`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::fs;
use std::io::{self, Write};

use cofferdam::cases::{
    CancelToken, EntryType, Executor, GradeError, GradeInputs, Grader, GraderScore, GraderWeight,
    OwnParts, TrialBench,
};
use cofferdam::jobs::enter_user_namespace;

const CASE: &str = "\
id: shorten
task: {prompt: Make it shorter.}
source: {path: src}
harnesses: {cut: {kind: command, argv: [sed, -i, /^#/d, main.py]}}
matrix: {harnesses: [nop, cut], models: [m]}
expect: {pass_threshold: 0.5}
";

/// Few lines are worth more than many.
#[derive(Debug)]
struct FewLines {
    /// What is worth 1.
    lines: usize,
}

impl Grader for FewLines {
    fn grade(&self, cell: &dyn Executor, _: &GradeInputs) -> Result<Vec<GraderScore>, GradeError> {
        let mut found = 0;
        for entry in cell.list(".")? {
            if entry.entry_type == EntryType::File {
                found += cell.get(&entry.name)?.split(|byte| *byte == b'\n').count() - 1;
            }
        }
        #[allow(clippy::cast_precision_loss, reason = "few lines")]
        let value = (self.lines as f64 / found.max(self.lines) as f64).min(1.0);
        let counts = GraderWeight { weight: 1.0, gate: false };
        let words = format!("{found} lines, {} are enough", self.lines);
        let score = GraderScore::new("few_lines", counts, (value, found <= self.lines), words);
        Ok(vec![score.with("lines", found)])
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

/// Runs a trial of each harness and writes its score to `out`.
fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let case = place.path().join("case");
    fs::create_dir_all(case.join("src"))?;
    fs::write(case.join("case.yaml"), CASE)?;
    fs::write(case.join("src/main.py"), "# one\n# two\n# three\nprint('hello')\n")?;

    let graders: Vec<Box<dyn Grader>> = vec![Box::new(FewLines { lines: 1 })];
    let own = OwnParts { graders: Some(graders), ..OwnParts::default() };
    let bench = TrialBench::builder(&case, place.path().join("store")).own(own).build()?;
    for harness in ["nop", "cut"] {
        let result = bench.run(harness, "m", &CancelToken::new()?)?;
        let score = result.end.scores.first().ok_or("no score")?;
        writeln!(
            out,
            "{harness}: {}, passed {}, overall {}",
            score.explanation,
            result.has_passed(),
            result.end.overall_score.unwrap_or_default()
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_grader_judges_what_each_agent_left() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let wanted = "\
nop: 4 lines, 1 are enough, passed false, overall 0.25
cut: 1 lines, 1 are enough, passed true, overall 1
";
        assert_eq!(String::from_utf8(out).unwrap(), wanted);
    }
}
