//! Executes the code of a model's answers in a context that keeps its variables, as a library.
//!
//! `cargo run --example notebook`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;

use cofferdam::engine::{
    CodeExecutionInput, CodeExecutor, OutputSpec, SandboxCodeExecutor, SandboxEngine,
    enter_user_namespace, extract_code_blocks, result_string,
};

/// What a model says, turn by turn.
const ANSWERS: [&str; 3] = [
    "First the squares:\n```python\nsquares = {n: n * n for n in range(10)}\nprint(len(squares))\n```\n",
    "Now I look one up:\n```python\nsquares[12]\n```\nand count my files:\n```bash\nls $OUTPUT_DIR | wc -l\n```\n",
    "I keep them:\n```python\nopen('out/squares.txt', 'w').write(str(squares[9]))\nprint(squares[9])\n```\n",
];

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let engine = Arc::new(SandboxEngine::builder(place.path().join("engine")).build()?);
    let outputs = OutputSpec { globs: vec!["out/*.txt".to_owned()], ..OutputSpec::default() };
    let executor = SandboxCodeExecutor::new(engine).stateful().outputs(outputs);
    for answer in ANSWERS {
        let code_blocks = extract_code_blocks(answer, &executor.code_block_delimiter());
        // The label names the workspace, and so the context with the variables.
        let input = CodeExecutionInput { code_blocks, execution_id: "example".to_owned() };
        let result = executor.execute_code(input)?;
        // This is what the model reads next.
        writeln!(out, "{}", result_string(&result).trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_keeps_variables_from_one_answer_to_the_next() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let turns: Vec<&str> = text.split("Code execution result:\n").skip(1).collect();
        assert_eq!(turns[0], "10\n");
        assert!(turns[1].starts_with("Error executing code block 0: Traceback"), "{text}");
        assert!(turns[1].ends_with("KeyError: 12\n0\n"), "{text}");
        assert_eq!(turns[2], "81\n\n Saved output files:\nout/squares.txt\n");
    }
}
