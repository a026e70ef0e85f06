//! `make test` in the same root file system without a sandbox: as root, in a chroot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use cofferdam_test_server::shipped::{Language, repository};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// A root whose writable directories are in memory, like those of a sandbox.
pub struct BareRoot {
    root: PathBuf,
}

impl BareRoot {
    /// Mounts the file systems that a program expects, only for this process and its children.
    pub fn enter(root: &Path) -> Self {
        let none = None::<&str>;
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).unwrap();
        for writable in ["workspace", "tmp"] {
            let place = root.join(writable);
            fs::create_dir_all(&place).unwrap();
            mount(Some("tmpfs"), &place, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        }
        for shown in ["dev", "proc"] {
            let host = Path::new("/").join(shown);
            mount(Some(&host), &root.join(shown), none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
                .unwrap();
        }
        Self { root: root.to_owned() }
    }

    /// The workspace of a language with the example's files, from which its runs start.
    pub fn workspace(&self, slug: &str, language: &Language) -> Workspace {
        let langs = repository().join("langs");
        let table: toml::Table =
            toml::from_str(&fs::read_to_string(langs.join("languages.toml")).unwrap()).unwrap();
        let env = table[slug].get("env").and_then(toml::Value::as_table);
        let env = env.into_iter().flatten().map(|(name, value)| (name, value.as_str().unwrap()));
        Workspace {
            template: langs.join(slug),
            folder: language.folder.clone(),
            env: env.map(|(name, value)| (name.clone(), value.to_owned())).collect(),
        }
    }

    /// Milliseconds of one `make test` in a fresh copy.
    pub fn make_test(&self, workspace: &Workspace) -> f64 {
        let script = "cd /workspace && exec make -s test";
        let mut command = Command::new("chroot");
        command.arg(&self.root).args(["/bin/sh", "-c", script]).env_clear();
        command
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .envs([("HOME", "/tmp/home"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")])
            .envs(workspace.env.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        self.refill(workspace);
        let began = Instant::now();
        let status = command.status().unwrap();
        let took = began.elapsed().as_secs_f64() * 1_000.0;
        assert!(status.success(), "{command:?}: {status}");
        took
    }

    fn refill(&self, workspace: &Workspace) {
        for writable in ["workspace", "tmp"] {
            for entry in fs::read_dir(self.root.join(writable)).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }
                    .unwrap();
            }
        }
        fs::create_dir(self.root.join("tmp/home")).unwrap();
        let place = self.root.join("workspace");
        copy(&workspace.template, &place);
        copy(&workspace.template.join("example"), &place.join(&workspace.folder));
    }
}

/// The source of a run's files.
pub struct Workspace {
    template: PathBuf,
    folder: String,
    env: Vec<(String, String)>,
}

/// Copies the contents of one directory into another, links as links.
fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-a").arg(from.join(".")).arg(to).status().unwrap();
    assert!(status.success(), "cp -a {from:?} {to:?}");
}
