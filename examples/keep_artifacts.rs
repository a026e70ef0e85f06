//! Finds the code in a model's answer and keeps it as an artifact, as a library.
//!
//! `cargo run --example keep_artifacts`

use std::error::Error;
use std::io::{self, Write};
use std::sync::Arc;

use cofferdam::engine::{
    ArtifactContext, ArtifactScope, ArtifactStore, CodeBlockDelimiter, EngineDir, build_block_spec,
    extract_code_blocks, load_artifact_helper, parse_artifact_ref, save_artifact_helper,
    with_artifact_service, with_artifact_session,
};

const ANSWER: &str = "\
This prints the answer:
```python
print(6 * 7)
```
";

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    // One process at a time has the directory; all in it may take 64 MiB, one version 1 MiB.
    let directory = EngineDir::open(&place.path().join("engine"), 64 << 20)?;
    let store = ArtifactStore::open(Arc::new(directory), 1 << 20)?;
    let session = ArtifactScope::new("", "example", "someone", "session-1")?;
    let context = with_artifact_service(ArtifactContext::default(), store);
    let context = with_artifact_session(context, session);

    for (index, block) in
        extract_code_blocks(ANSWER, &CodeBlockDelimiter::default()).iter().enumerate()
    {
        let spec = build_block_spec(index, block)?;
        let version =
            save_artifact_helper(&context, &spec.file, block.code.as_bytes(), "text/x-python")?;
        writeln!(out, "{}@{version}: {} {}", spec.file, spec.cmd, spec.file)?;
    }
    let (name, version) = parse_artifact_ref("code_0.py@0")?;
    let kept = load_artifact_helper(&context, &name, version)?;
    write!(out, "{}", String::from_utf8(kept.data)?)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_keeps_the_code_and_loads_it_again() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "code_0.py@0: python3 code_0.py\nprint(6 * 7)\n");
    }
}
