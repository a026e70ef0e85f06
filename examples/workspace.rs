//! Puts a program and its data into a workspace, runs it and collects what it made, as a library.
//!
//! `cargo run --example workspace`, as root or as a user who may create user namespaces.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use cofferdam::engine::{
    ProgramRunner, PutFile, ResourceLimits, RunProgramSpec, SandboxEngine, WorkspaceFs,
    WorkspaceManager, WorkspacePolicy, enter_user_namespace,
};

const PROGRAM: &str = "\
import json, os, sys
people = json.load(open('work/people.json'))
oldest = min(people, key=lambda person: person['born'])
with open(os.environ['OUTPUT_DIR'] + '/oldest.txt', 'w') as out:
    out.write(oldest['name'] + '\\n')
print(sys.stdin.read().strip(), len(people), 'people')
";
const PEOPLE: &str = r#"[{"name": "Grace", "born": 1906}, {"name": "Ada", "born": 1815}]"#;

fn main() -> Result<(), Box<dyn Error>> {
    // First, while there is one thread: without privileges sandboxes need it.
    enter_user_namespace();
    run(&mut io::stdout())
}

fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let engine = SandboxEngine::builder(place.path().join("engine")).build()?;
    // The kernel refuses more than 8 MiB of files, by any writer.
    let policy = WorkspacePolicy { max_disk_bytes: Some(8 << 20), ..WorkspacePolicy::default() };
    let workspace = engine.create_workspace("example", policy)?;
    let file = |path: &str, content: &str| PutFile {
        path: path.to_owned(),
        content: content.into(),
        ..PutFile::default()
    };
    let files = vec![file("work/oldest.py", PROGRAM), file("work/people.json", PEOPLE)];
    engine.put_files(&workspace, files)?;

    let spec = RunProgramSpec {
        limits: ResourceLimits { memory_mb: Some(128), ..ResourceLimits::default() },
        ..RunProgramSpec::new("python3").args(["work/oldest.py"]).stdin("read")
    };
    let result = engine.run_program(&workspace, spec.timeout(Duration::from_secs(20)))?;
    write!(out, "{}{}", result.stdout, result.stderr)?;
    for file in engine.collect(&workspace, &["$OUTPUT_DIR/**".to_owned()])?.files {
        write!(out, "{}: {}", file.name, file.content)?;
    }
    // It kills what still runs, and frees the files.
    engine.cleanup(&workspace)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_example_writes_the_output_and_the_file_of_its_program() {
        let mut out = Vec::new();
        super::run(&mut out).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "read 2 people\nout/oldest.txt: Ada\n");
    }
}
