//! The command lines of podman and docker: pure functions from what is wanted to the words.

use std::env::split_paths;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::case::cell::error::{ExecCode, ExecError};
use crate::case::cell::plan::{CellExecutorKind, StepLimits};
use crate::case::file::ContainerBackend;

/// Where the helper is in a container.
pub(super) const HELPER_PATH: &str = "/.cofferdam";
/// The argument with which our program is the helper.
const HELPER_ARGUMENT: &str = "cell-container";
/// Open files of one process.
const OPEN_FILES_MAX: u64 = 4096;
/// Processes of the caller's uid, on hosts where that is limited too.
const TASKS_MAX: u64 = 4096;

/// A container engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineKind {
    Podman,
    Docker,
}

/// A container engine of this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerEngine {
    pub(super) kind: EngineKind,
    /// Its program.
    pub(super) program: PathBuf,
}

/// Who runs the commands of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ContainerUser {
    /// Root, with the capabilities that the engine gives: `container.setup`.
    Root,
    /// The caller, without capabilities.
    Caller { uid: u32, gid: u32 },
}

/// The hard limits of this process, which a container cannot exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallerLimits {
    pub(super) open_files: u64,
    pub(super) tasks: u64,
}

/// A directory of this host that a container shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShownPath {
    pub(super) source: PathBuf,
    /// Where the container shows it.
    pub(super) target: PathBuf,
    pub(super) is_read_only: bool,
}

/// A container to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerShape {
    /// The container's name.
    pub(super) name: String,
    /// The image's id or name.
    pub(super) image: String,
    /// Who runs its commands.
    pub(super) user: ContainerUser,
    /// Whether the caller is root.
    pub(super) is_rootful: bool,
    /// The program that is mounted as the helper.
    pub(super) helper: PathBuf,
    /// The directory of the Cell, shown at its own path.
    pub(super) cell: PathBuf,
    /// The directory of the Case, shown read-only at its own path.
    pub(super) case_dir: Option<PathBuf>,
    /// What else it shows.
    pub(super) shown: Vec<ShownPath>,
    /// Whether it stays, stopped, when it has ended.
    pub(super) stays: bool,
    /// What all its processes may use.
    pub(super) limits: StepLimits,
    /// What this process may use.
    pub(super) hard_limits: CallerLimits,
}

impl EngineKind {
    /// The name of its program.
    pub(super) fn program(self) -> &'static str {
        match self {
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    /// The words that print the version of what runs containers. They fail where nothing does.
    pub(super) fn version(self) -> Vec<String> {
        let format = match self {
            Self::Podman => "{{.Client.Version}}",
            Self::Docker => "{{.Server.Version}}",
        };
        words(["version", "--format", format])
    }

    /// The words that describe `image` as JSON.
    pub(super) fn inspect_image(image: &str) -> Vec<String> {
        words(["image", "inspect", image])
    }

    /// The words that fetch `image`.
    pub(super) fn pull(image: &str) -> Vec<String> {
        words(["pull", "--quiet", image])
    }

    /// The words that make an image of the container `name`, in which nothing runs but the helper.
    pub(super) fn commit(name: &str, image: &str) -> Vec<String> {
        words(["commit", "--pause=false", name, image])
    }

    /// The words that end and remove the containers `names`, some of which may be gone.
    pub(super) fn remove_containers(self, names: &[String]) -> Vec<String> {
        let options: &[&str] = match self {
            Self::Podman => &["rm", "--force", "--volumes", "--ignore", "--time", "0"],
            Self::Docker => &["rm", "--force", "--volumes"],
        };
        words(options.iter().copied().chain(names.iter().map(String::as_str)))
    }

    /// The words that remove `images`, some of which may be gone.
    pub(super) fn remove_images(self, images: &[String]) -> Vec<String> {
        words(["rmi", "--force"].into_iter().chain(images.iter().map(String::as_str)))
    }

    /// The words that give the container `name` another name.
    pub(super) fn rename(name: &str, new_name: &str) -> Vec<String> {
        words(["rename", name, new_name])
    }

    /// The words that run a container, attached. It is removed when it ends, unless it stays.
    ///
    /// # Errors
    /// A path that a mount cannot have.
    pub(super) fn run(self, shape: &ContainerShape) -> Result<Vec<String>, ExecError> {
        let mut line = words(["run"]);
        if !shape.stays {
            line.push("--rm".to_owned());
        }
        line.extend(words(["--interactive", "--name", &shape.name]));
        line.extend(words(["--pull", "never", "--log-driver", "none", "--workdir", "/"]));
        // The image's would run beside the commands.
        line.extend(words(["--no-healthcheck", "--network", "none"]));
        if self == Self::Podman {
            // It passes the proxies of our environment otherwise.
            line.push("--http-proxy=false".to_owned());
            if !shape.is_rootful {
                line.extend(words(["--userns", "keep-id"]));
            }
        }
        // The engine's labels would keep the container from the Cell's files.
        line.extend(words(["--security-opt", "label=disable"]));
        line.extend(user_options(shape.user));
        line.extend(limit_options(shape.limits, shape.hard_limits));
        line.extend(mount_option(&shape.cell, &shape.cell, false)?);
        if let Some(case_dir) = &shape.case_dir {
            line.extend(mount_option(case_dir, case_dir, true)?);
        }
        for ShownPath { source, target, is_read_only } in &shape.shown {
            line.extend(mount_option(source, target, *is_read_only)?);
        }
        line.extend(mount_option(&shape.helper, Path::new(HELPER_PATH), true)?);
        line.extend(words(["--entrypoint", HELPER_PATH, &shape.image, HELPER_ARGUMENT]));
        Ok(line)
    }
}

impl ContainerEngine {
    /// The engine that `backend` names, or the first that is in a directory of `search_path`.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(backend: ContainerBackend, search_path: &OsStr) -> Result<Self, ExecError> {
        let kinds: &[EngineKind] = match backend {
            ContainerBackend::Auto => &[EngineKind::Podman, EngineKind::Docker],
            ContainerBackend::Podman => &[EngineKind::Podman],
            ContainerBackend::Docker => &[EngineKind::Docker],
        };
        let found = kinds.iter().find_map(|kind| {
            let mut programs = split_paths(search_path)
                .filter(|directory| directory.is_absolute())
                .map(|directory| directory.join(kind.program()));
            let program =
                programs.find(|path| path.is_file() && access(path, AccessFlags::X_OK).is_ok())?;
            Some(Self { kind: *kind, program })
        });
        let names: Vec<_> = kinds.iter().map(|kind| kind.program()).collect();
        found.ok_or_else(|| unavailable(&format!("no {} on PATH", names.join(", no "))))
    }
}

/// The error of an engine that is not there.
pub(super) fn unavailable(reason: &str) -> ExecError {
    let kind = CellExecutorKind::Container.word();
    ExecError::new(ExecCode::BackendUnavailable, format!("{kind}: {reason}"))
}

fn user_options(user: ContainerUser) -> Vec<String> {
    match user {
        ContainerUser::Root => words(["--user", "0:0"]),
        ContainerUser::Caller { uid, gid } => {
            let mut options = words(["--user", &format!("{uid}:{gid}"), "--cap-drop", "ALL"]);
            options.extend(words(["--security-opt", "no-new-privileges"]));
            options
        }
    }
}

fn limit_options(limits: StepLimits, hard: CallerLimits) -> Vec<String> {
    let memory = limits.memory_bytes_max.to_string();
    let processes = limits.processes_max.to_string();
    let open_files = OPEN_FILES_MAX.min(hard.open_files);
    let tasks = TASKS_MAX.max(limits.processes_max).min(hard.tasks);
    let mut options = words(["--memory", &memory, "--memory-swap", &memory]);
    options.extend(words(["--pids-limit", &processes]));
    options.extend(words(["--ulimit", &format!("nofile={open_files}:{open_files}")]));
    options.extend(words(["--ulimit", &format!("nproc={tasks}:{tasks}")]));
    options
}

/// The option that shows `source` at `target`.
fn mount_option(
    source: &Path,
    target: &Path,
    is_read_only: bool,
) -> Result<Vec<String>, ExecError> {
    let text = |path: &Path| {
        // The option is a line of comma-separated values.
        let text = path.to_str().filter(|text| !text.contains([',', '"', '\n', '\r']));
        text.map(str::to_owned).ok_or_else(|| {
            let words = format!("{}: a container cannot show this path", path.display());
            ExecError::new(ExecCode::BackendFailed, words).with("step", "mount")
        })
    };
    let mut value = format!("type=bind,source={},target={}", text(source)?, text(target)?);
    if is_read_only {
        value.push_str(",readonly");
    }
    Ok(words(["--mount", &value]))
}

fn words<'w>(texts: impl IntoIterator<Item = &'w str>) -> Vec<String> {
    texts.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    fn shape() -> ContainerShape {
        ContainerShape {
            name: "n".into(),
            image: "i".into(),
            user: ContainerUser::Caller { uid: 7, gid: 8 },
            is_rootful: true,
            helper: "/h".into(),
            cell: "/c".into(),
            case_dir: Some("/d".into()),
            shown: [("/s", "/t", true), ("/m", "/n", false)]
                .map(|(source, target, is_read_only)| {
                    let (source, target) = (source.into(), target.into());
                    ShownPath { source, target, is_read_only }
                })
                .into(),
            stays: false,
            limits: StepLimits {
                memory_bytes_max: 5,
                processes_max: 6,
                disk_bytes_max: 1,
                stdout_bytes_max: 1,
                stderr_bytes_max: 1,
            },
            hard_limits: CallerLimits { open_files: 1000, tasks: 100_000 },
        }
    }

    fn line(kind: EngineKind, shape: &ContainerShape) -> String {
        kind.run(shape).unwrap().join(" ")
    }

    const BEGIN: &str = "run --rm --interactive --name n --pull never --log-driver none --workdir / --no-healthcheck --network none";
    const END: &str = "--memory 5 --memory-swap 5 --pids-limit 6 --ulimit nofile=1000:1000 --ulimit nproc=4096:4096 \
        --mount type=bind,source=/c,target=/c --mount type=bind,source=/d,target=/d,readonly \
        --mount type=bind,source=/s,target=/t,readonly --mount type=bind,source=/m,target=/n \
        --mount type=bind,source=/h,target=/.cofferdam,readonly --entrypoint /.cofferdam i cell-container";

    #[test]
    fn the_caller_has_no_capability_and_no_network_in_every_engine() {
        let user = "--security-opt label=disable --user 7:8 --cap-drop ALL --security-opt no-new-privileges";
        for (kind, is_rootful, own) in [
            (EngineKind::Podman, true, "--http-proxy=false "),
            (EngineKind::Podman, false, "--http-proxy=false --userns keep-id "),
            (EngineKind::Docker, true, ""),
            (EngineKind::Docker, false, ""),
        ] {
            let shape = ContainerShape { is_rootful, ..shape() };
            assert_eq!(line(kind, &shape), format!("{BEGIN} {own}{user} {END}"));
        }
    }

    #[test]
    fn only_setup_is_root_and_a_case_that_is_not_shown_is_not_mounted() {
        let root = ContainerShape { user: ContainerUser::Root, case_dir: None, ..shape() };
        let begin = format!("{BEGIN} --security-opt label=disable --user 0:0 --memory");
        assert!(line(EngineKind::Docker, &root).starts_with(&begin));
        assert!(!line(EngineKind::Docker, &root).contains("/d"));
        let stays = ContainerShape { stays: true, ..shape() };
        assert!(line(EngineKind::Docker, &stays).starts_with("run --interactive --name n "));
    }

    #[test]
    fn a_path_that_ends_a_mount_option_is_refused() {
        for path in ["/a,readonly", "/a\"b", "/a\nb"] {
            let shape = ContainerShape { cell: path.into(), ..shape() };
            let error = EngineKind::Podman.run(&shape).unwrap_err();
            assert_eq!(error.code, ExecCode::BackendFailed, "{path:?}");
        }
    }

    #[test]
    fn the_other_command_lines_are_those_of_the_engine() {
        let names = ["a".to_owned(), "b".to_owned()];
        for (found, wanted) in [
            (EngineKind::Podman.version(), "version --format {{.Client.Version}}"),
            (EngineKind::Docker.version(), "version --format {{.Server.Version}}"),
            (EngineKind::inspect_image("i"), "image inspect i"),
            (EngineKind::pull("i"), "pull --quiet i"),
            (EngineKind::commit("n", "i"), "commit --pause=false n i"),
            (EngineKind::rename("n", "m"), "rename n m"),
            (
                EngineKind::Podman.remove_containers(&names),
                "rm --force --volumes --ignore --time 0 a b",
            ),
            (EngineKind::Docker.remove_containers(&names), "rm --force --volumes a b"),
            (EngineKind::Docker.remove_images(&names), "rmi --force a b"),
        ] {
            assert_eq!(found.join(" "), wanted);
        }
    }

    #[test]
    fn podman_comes_before_docker_and_a_missing_engine_is_unavailable() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().as_os_str();
        let found = |backend| {
            let found = ContainerEngine::find(backend, path);
            found.map(|engine| engine.kind).map_err(|error| error.code)
        };
        let missing = Err(ExecCode::BackendUnavailable);
        assert_eq!(found(ContainerBackend::Auto), missing);
        for (name, mode) in [("docker", 0o755), ("podman", 0o644)] {
            fs::write(place.path().join(name), "").unwrap();
            let permissions = fs::Permissions::from_mode(mode);
            fs::set_permissions(place.path().join(name), permissions).unwrap();
        }
        assert_eq!(found(ContainerBackend::Auto), Ok(EngineKind::Docker));
        assert_eq!(found(ContainerBackend::Podman), missing);
        let permissions = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.path().join("podman"), permissions).unwrap();
        assert_eq!(found(ContainerBackend::Auto), Ok(EngineKind::Podman));
        assert_eq!(found(ContainerBackend::Docker), Ok(EngineKind::Docker));
    }
}
