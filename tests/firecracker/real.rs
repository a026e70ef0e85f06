//! Runs the same job with a real Firecracker, or reports why it cannot.
//!
//! `FIRECRACKER_BIN` (else `firecracker` in the PATH), `FIRECRACKER_KERNEL`, `FIRECRACKER_ROOT_IMAGE`,
//! `FIRECRACKER_ROOT_DIRECTORY` and, if the image lacks the guest's init, `FIRECRACKER_INITRD` name
//! the parts to use. Nothing is downloaded.

use std::env;
use std::path::PathBuf;

use cofferdam::executor::Executor;
use cofferdam_firecracker::{MicroVms, Settings, Vmm};

use crate::job::Job;

fn firecracker() -> PathBuf {
    let given = env::var_os("FIRECRACKER_BIN").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let found =
        || env::split_paths(&path).map(|place| place.join("firecracker")).find(|f| f.is_file());
    given.or_else(found).unwrap_or_else(|| "/usr/bin/firecracker".into())
}

#[test]
fn a_job_runs_in_a_real_microvm_or_the_backend_says_why_it_cannot() {
    let variable = |name: &str, otherwise: &str| {
        env::var_os(name).map_or_else(|| PathBuf::from(otherwise), PathBuf::from)
    };
    let work = tempfile::tempdir().unwrap();
    let vmm = Vmm {
        firecracker: firecracker(),
        jailer: None,
        kernel: variable("FIRECRACKER_KERNEL", "/usr/share/firecracker/vmlinux"),
        initrd: env::var_os("FIRECRACKER_INITRD").map(PathBuf::from),
        root_image: variable("FIRECRACKER_ROOT_IMAGE", "/usr/share/firecracker/root.ext4"),
        boot_arguments: String::new(),
    };
    let root_directory = variable("FIRECRACKER_ROOT_DIRECTORY", "/");
    let settings = Settings::new(work.path().to_owned(), root_directory);
    let backend = MicroVms::new(settings, vmm);
    match backend.describe() {
        Err(reason) => {
            // Never skips silently: the reason is reported, and a job gets it too.
            println!("no real Firecracker here: {reason}");
            let words = reason.to_string();
            assert!(words.starts_with("sandbox: ") && words.len() > "sandbox: ".len(), "{words}");
            assert_eq!(backend.describe(), Err(reason));
            assert_eq!(std::fs::read_dir(work.path()).unwrap().count(), 0);
            let required = env::var_os("FIRECRACKER_REQUIRED").is_some();
            assert!(!required, "FIRECRACKER_REQUIRED is set");
        }
        Ok(capabilities) => {
            println!("a real Firecracker: {capabilities:?}");
            let mut job = Job::python(
                &backend,
                "import sys; print(open('in').read()); open('out', 'w').write('made'); sys.exit(3)",
            );
            job.files = vec![("in", "given")];
            let ran = job.run(&backend, None);
            let stdout = "given\n".to_owned();
            assert_eq!(ran.ending(), ("exited", Some(3), stdout, String::new()));
            assert_eq!(ran.left["out"].as_deref(), Some("made"));
        }
    }
}
