//! The backend with a scripted Firecracker: the requests that it gets, and the handling of each of
//! its failures.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cofferdam::executor::{Capabilities, Executor, FoundProgram, RunInput, Unavailable};
use cofferdam_core::{
    Enforced, NotStarted, Outcome, OutputSink, RunReport, SetupFailure, Stream, Usage, Watch,
};
use cofferdam_firecracker::{Firecracker, Jailer, MicroVms, Settings, Vmm, guest};
use serde_json::{Value, json};
use tempfile::{TempDir, tempdir};

use crate::job::Job;

/// A Firecracker that follows `script`, with its files and directories.
struct Scripted {
    place: TempDir,
    script: Value,
    jailer: Option<Jailer>,
}

impl Scripted {
    fn new(script: Value) -> Self {
        let place = tempdir().unwrap();
        for name in ["work", "jails"] {
            fs::create_dir(place.path().join(name)).unwrap();
        }
        for name in ["vmlinux", "root.ext4"] {
            fs::write(place.path().join(name), name).unwrap();
        }
        Self { place, script, jailer: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// A backend that uses it.
    fn backend(&self) -> Firecracker {
        let mut script = self.script.clone();
        script["record"] = json!(self.path("record"));
        fs::write(self.path("script"), script.to_string()).unwrap();
        let fake =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/firecracker/fake_firecracker.py");
        for name in ["firecracker", "jailer"] {
            let line = format!(
                "#!/bin/sh\nexec /usr/bin/python3 {} {} \"$@\"\n",
                fake.display(),
                self.path("script").display()
            );
            fs::write(self.path(name), line).unwrap();
            fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let vmm = Vmm {
            firecracker: self.path("firecracker"),
            jailer: self.jailer.clone(),
            kernel: self.path("vmlinux"),
            initrd: None,
            root_image: self.path("root.ext4"),
            boot_arguments: String::new(),
        };
        let settings = Settings {
            boot_wait: Duration::from_secs(5),
            answer_wait: Duration::from_secs(5),
            ..Settings::new(self.path("work"), PathBuf::from("/"))
        };
        MicroVms::new(settings, vmm)
    }

    /// The arguments and requests in order.
    fn asked(&self) -> Vec<Value> {
        let record = fs::read_to_string(self.path("record")).unwrap_or_default();
        record.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The reason why the backend is unavailable; asserts that it leaves nothing behind.
    #[track_caller]
    fn unavailable(&self) -> String {
        let reason = self.backend().describe().unwrap_err().0;
        self.nothing_is_left();
        reason
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        let left = |name: &str| fs::read_dir(self.path(name)).map_or(0, Iterator::count);
        assert_eq!((left("work"), left("jails/firecracker")), (0, 0));
        let own = self.place.path().to_str().unwrap();
        let processes = fs::read_dir("/proc").unwrap().map(Result::unwrap);
        let running = processes.filter(|process| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(own)
        });
        assert_eq!(running.count(), 0);
    }

    /// Plays a guest that supports everything, for one connection.
    fn guest(&mut self) -> thread::JoinHandle<()> {
        let socket = self.path("guest");
        self.script["guest"] = json!(socket);
        let listener = UnixListener::bind(socket).unwrap();
        let (work, jails) = (self.path("work"), self.path("jails/firecracker"));
        thread::spawn(move || {
            let (line, _) = listener.accept().unwrap();
            let jail = fs::read_dir(jails).ok().and_then(|mut jails| jails.next());
            let drive = match jail {
                Some(jail) => jail.unwrap().path().join("root/scratch"),
                None => fs::read_dir(work).unwrap().next().unwrap().unwrap().path().join("scratch"),
            };
            // A probe closes the connection.
            let _ = guest::serve(line, Ok(&Playing), &drive);
        })
    }
}

/// An executor of a guest that plays one run.
#[derive(Debug)]
struct Playing;

impl Executor for Playing {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        Ok(Capabilities { enforced: Enforced::default(), not_enforced: Vec::new() })
    }

    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        let file = fs::File::open(name).unwrap().into();
        Ok(Some(FoundProgram { path: name.to_owned(), target: name.to_owned(), file }))
    }

    fn execute(
        &self,
        mut task: RunInput<'_>,
        _: &Watch,
        sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let workspace = tempdir().unwrap();
        let open = fs::File::open(workspace.path()).unwrap();
        let metadata = open.metadata().unwrap();
        let owner = cofferdam_tree::Owner { uid: metadata.uid(), gid: metadata.gid() };
        task.fill(std::os::fd::AsFd::as_fd(&open), owner)?;
        sink.unwrap().take(Stream::Stdout, b"played");
        let input = fs::read_to_string(workspace.path().join("in")).unwrap();
        fs::write(workspace.path().join("out"), input.to_uppercase()).unwrap();
        task.collect(std::os::fd::AsFd::as_fd(&open));
        let mut report = RunReport {
            outcome: Outcome::Exited { code: 0 },
            stdout: Default::default(),
            stderr: Default::default(),
            usage: Usage {
                wall_ms: 1,
                cpu_ms: 1,
                memory_peak_bytes: 1,
                memory_peak_source: "cgroup2",
                processes_peak: None,
                oom_kills: None,
                stdout_bytes: 6,
                stderr_bytes: 0,
            },
            enforced: Enforced::default(),
            not_enforced: Vec::new(),
            timings: Default::default(),
            standby: false,
        };
        report.stdout.bytes_total = 6;
        Ok(report)
    }
}

fn run_one(scripted: &mut Scripted) {
    let guest = scripted.guest();
    let backend = scripted.backend();
    let mut job = Job::python(&backend, "pass");
    job.files = vec![("in", "shout")];
    let ran = job.run(&backend, None);
    assert_eq!(ran.ending(), ("exited", Some(0), "played".to_owned(), String::new()));
    guest.join().unwrap();
    assert_eq!(ran.left["out"].as_deref(), Some("SHOUT"));
    scripted.nothing_is_left();
}

const STEPS: [&str; 6] =
    ["/machine-config", "/boot-source", "/drives/rootfs", "/drives/scratch", "/vsock", "/actions"];

#[test]
fn a_machine_is_configured_step_by_step_and_removed_completely() {
    let mut scripted = Scripted::new(json!({}));
    run_one(&mut scripted);
    let asked = scripted.asked();
    let id = asked[0][1].as_str().unwrap();
    assert!(id.starts_with("vm-") && id.len() == 19, "{id}");
    assert_eq!(asked[0], json!(["--id", id, "--api-sock", "api.sock"]));
    let paths: Vec<_> = asked[1..].iter().map(|request| request[0].as_str().unwrap()).collect();
    assert_eq!(paths, STEPS);
    let body = |step: usize| &asked[step + 1][1];
    // 768 MiB for the job, about a page of workspace, 192 MiB for the guest itself.
    assert_eq!(body(0), &json!({"vcpu_count": 1, "mem_size_mib": 961, "smt": false}));
    assert_eq!(body(1)["kernel_image_path"], json!(scripted.path("vmlinux")));
    assert_eq!(body(2)["path_on_host"], json!(scripted.path("root.ext4")));
    assert_eq!(body(2)["is_read_only"], true);
    assert!(body(3)["path_on_host"].as_str().unwrap().ends_with(&format!("{id}/scratch")));
    assert_eq!(body(4), &json!({"guest_cid": 3, "uds_path": "v.sock"}));
    assert_eq!(body(5), &json!({"action_type": "InstanceStart"}));
}

#[test]
fn a_jailed_machine_gets_links_and_its_jail_is_removed() {
    let mut scripted = Scripted::new(json!({}));
    let metadata = fs::metadata(scripted.place.path()).unwrap();
    scripted.jailer = Some(Jailer {
        binary: scripted.path("jailer"),
        uid: metadata.uid(),
        gid: metadata.gid(),
        chroot_base: scripted.path("jails"),
        cgroup_version: 2,
        parent_cgroup: Some("cofferdam-test-machines".to_owned()),
        cgroups: vec!["memory.max=2G".to_owned()],
        netns: None,
        resource_limits: Vec::new(),
    });
    run_one(&mut scripted);
    let asked = scripted.asked();
    let arguments = asked[0].as_array().unwrap();
    assert_eq!(arguments[2..4], [json!("--exec-file"), json!(scripted.path("firecracker"))]);
    assert_eq!(
        arguments[arguments.len() - 3..],
        [json!("--"), json!("--api-sock"), json!("/api.sock")]
    );
    let paths = ["/kernel", "/root-image", "/scratch"].map(|path| json!(path));
    let told = [
        &asked[2][1]["kernel_image_path"],
        &asked[3][1]["path_on_host"],
        &asked[4][1]["path_on_host"],
    ];
    assert_eq!(told, [&paths[0], &paths[1], &paths[2]]);
    assert_eq!(asked[5][1]["uds_path"], "/v.sock");
    // The originals are unchanged.
    assert_eq!(fs::read(scripted.path("root.ext4")).unwrap(), b"root.ext4");
}

#[test]
fn an_error_at_any_step_is_reported_in_firecrackers_words() {
    for (number, step) in STEPS.iter().enumerate() {
        let words = format!("{{\"fault_message\": \"no {number}\\nat all\"}}");
        let scripted = Scripted::new(json!({"faults": {*step: [400, words]}}));
        let want = format!("sandbox: firecracker PUT {step}: 400: no {number} at all");
        assert_eq!(scripted.unavailable(), want);
        assert_eq!(scripted.asked().len(), number + 2, "no request follows {step}");
    }
}

#[test]
fn an_invalid_answer_and_a_death_at_a_step_are_distinguished() {
    let odd = Scripted::new(json!({"faults": {"/vsock": [500, "<html>"]}}));
    let want = "sandbox: firecracker PUT /vsock: malformed answer of the API: no fault_message";
    assert_eq!(odd.unavailable(), want);
    let dies = Scripted::new(json!({"dies_at": "/actions"})).unavailable();
    assert!(dies.starts_with("sandbox: firecracker PUT /actions: malformed answer of the API: cut off; it exited with code 9: a panic of its own"), "{dies}");
    let exits = Scripted::new(json!({"exit": "no /dev/kvm here"})).unavailable();
    assert_eq!(exits, "sandbox: firecracker: it exited with code 7: no /dev/kvm here");
}

#[test]
fn an_unresponsive_firecracker_fails_at_the_boot_timeout() {
    let began = Instant::now();
    let scripted = Scripted::new(json!({"silent_at": "/drives/scratch"}));
    let want = "sandbox: firecracker PUT /drives/scratch: no answer in time";
    assert_eq!(scripted.unavailable(), want);
    let without_guest = Scripted::new(json!({}));
    assert_eq!(without_guest.unavailable(), "sandbox: guest: it did not boot in time");
    assert!(began.elapsed() < Duration::from_secs(15));
}

#[test]
fn missing_parts_are_named() {
    for name in ["firecracker", "vmlinux", "root.ext4"] {
        let scripted = Scripted::new(json!({}));
        let backend = scripted.backend();
        fs::remove_file(scripted.path(name)).unwrap();
        let reason = backend.describe().unwrap_err().0;
        let want = format!("sandbox: open {}: ENOENT", scripted.path(name).display());
        assert_eq!(reason, want);
        scripted.nothing_is_left();
    }
    let scripted = Scripted::new(json!({}));
    let backend = scripted.backend();
    fs::remove_dir(scripted.path("work")).unwrap();
    assert_eq!(backend.describe().unwrap_err().0, "sandbox: work directory: ENOENT");
}

#[test]
fn a_probe_boots_a_guest_and_reports_its_capabilities() {
    let mut scripted = Scripted::new(json!({}));
    let guest = scripted.guest();
    let backend = scripted.backend();
    let capabilities = backend.describe().unwrap();
    guest.join().unwrap();
    assert_eq!(capabilities.not_enforced, [""; 0]);
    scripted.nothing_is_left();
}
