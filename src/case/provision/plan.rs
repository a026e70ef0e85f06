//! Which commands make an environment, in which order, and what later commands see of it. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::case::cell::{ExecRequest, StepAccess};
use crate::case::file::{CaseEnvironment, EnvironmentKind};
use crate::egress::EgressGrant;

/// Options of each installation by pip.
const PIP_OPTIONS: [&str; 2] = ["--disable-pip-version-check", "-q"];
/// uv takes no interpreter from the network, and the environment depends on no cache.
const UV_VARIABLES: [(&str, &str); 2] =
    [("UV_PYTHON_DOWNLOADS", "never"), ("UV_LINK_MODE", "copy")];
/// Variables that would lead an interpreter out of its environment.
const REMOVED: [&str; 2] = ["PYTHONHOME", "PYTHONPATH"];

/// Where commands see the files of a Cell, and its interpreter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvisionPlaces {
    /// The directory of the environment, absolute.
    pub env: PathBuf,
    /// The directory of the Case (`CASE_DIR`), absolute.
    pub case_dir: PathBuf,
    /// The interpreter of virtual environments: `container.python`, else `python3`.
    pub python: String,
    /// `PATH` of the executor, in a container that of its image.
    pub path: String,
}

/// What a command is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepPhase {
    /// It makes the virtual environment, which is empty before.
    MakeVenv,
    /// It installs into the virtual environment.
    Install,
    /// It is one of the Case's `commands`.
    Command,
}

/// A command of the plan.
#[derive(Debug, Clone)]
pub struct PlannedStep {
    /// What it is for.
    pub phase: StepPhase,
    /// The command. Its time is that of the whole plan.
    pub request: ExecRequest,
}

/// The word for `kind` in a case file and in results.
pub fn kind_word(kind: EnvironmentKind) -> &'static str {
    match kind {
        EnvironmentKind::PipVenv => "pip-venv",
        EnvironmentKind::Uv => "uv",
        EnvironmentKind::Command => "command",
    }
}

/// The commands that make `environment`. They see the directory of the Case and `variables`, and reach what `egress`
/// lets them reach. `venv: false` plans none.
pub fn steps(
    environment: &CaseEnvironment,
    places: &ProvisionPlaces,
    variables: &BTreeMap<String, String>,
    egress: Option<&EgressGrant>,
) -> Vec<PlannedStep> {
    if !is_provisioned(environment) {
        return Vec::new();
    }
    let mut commands = built_in(environment, places);
    let shell = |command: &String| (StepPhase::Command, vec![command.clone()]);
    commands.extend(environment.commands.iter().map(shell));
    let planned = commands.into_iter().map(|(phase, argv)| {
        let access = StepAccess { shows_case: true, egress: egress.cloned() };
        let env = variables_of(environment, places, variables, phase);
        let shell = phase == StepPhase::Command;
        PlannedStep { phase, request: ExecRequest { env, shell, access, ..ExecRequest::new(argv) } }
    });
    planned.collect()
}

/// What later commands see of `environment`, as a difference to the variables of their executor.
pub fn returned_environment(
    environment: &CaseEnvironment,
    places: &ProvisionPlaces,
) -> BTreeMap<String, Option<String>> {
    let mut env = BTreeMap::new();
    if !is_provisioned(environment) {
        return env;
    }
    if environment.kind != EnvironmentKind::Command {
        let bin = text(&places.env.join("bin"));
        let path = if places.path.is_empty() { bin } else { format!("{bin}:{}", places.path) };
        env.insert("VIRTUAL_ENV".to_owned(), Some(text(&places.env)));
        env.insert("PATH".to_owned(), Some(path));
        env.extend(REMOVED.map(|name| (name.to_owned(), None)));
    }
    env.extend(environment.env.iter().map(|(name, value)| (name.clone(), Some(value.clone()))));
    env
}

/// Whether the block does anything.
fn is_provisioned(environment: &CaseEnvironment) -> bool {
    environment.venv || environment.kind == EnvironmentKind::Command
}

/// The commands that are not the Case's.
fn built_in(
    environment: &CaseEnvironment,
    places: &ProvisionPlaces,
) -> Vec<(StepPhase, Vec<String>)> {
    let Some((make, pip)) = tools(environment, places) else { return Vec::new() };
    let mut commands = vec![(StepPhase::MakeVenv, make)];
    let mut install = |what: Vec<String>| {
        let argv = [&pip[..], &environment.pip_args, &what].concat();
        commands.push((StepPhase::Install, argv));
    };
    if !environment.requirements.is_empty() {
        install(environment.requirements.clone());
    }
    for file in &environment.requirement_files {
        install(vec!["-r".to_owned(), text(&places.case_dir.join(file))]);
    }
    if environment.is_editable {
        install(owned(["-e", "."]));
    }
    commands
}

/// What makes a virtual environment, and how what installs into it begins; `None` for commands alone.
fn tools(
    environment: &CaseEnvironment,
    places: &ProvisionPlaces,
) -> Option<(Vec<String>, Vec<String>)> {
    let (env, interpreter) = (text(&places.env), text(&places.env.join("bin/python")));
    let (python, env, interpreter) = (places.python.as_str(), env.as_str(), interpreter.as_str());
    let site_packages = environment.system_site_packages.then_some("--system-site-packages");
    match environment.kind {
        EnvironmentKind::Command => None,
        EnvironmentKind::PipVenv => {
            let make = [python, "-m", "venv", "--clear"].into_iter().chain(site_packages);
            let pip = [interpreter, "-m", "pip", "install"].into_iter().chain(PIP_OPTIONS);
            Some((owned(make.chain([env])), owned(pip)))
        }
        EnvironmentKind::Uv => {
            let make = ["uv", "venv", "--clear", "--python", python, env].into_iter();
            let pip = ["uv", "pip", "install", "--python", interpreter, "-q"];
            Some((owned(make.chain(site_packages)), owned(pip)))
        }
    }
}

/// The variables of a command: ours that it gets, what is returned once there is something to return, and those of uv,
/// which nothing changes.
fn variables_of(
    environment: &CaseEnvironment,
    places: &ProvisionPlaces,
    variables: &BTreeMap<String, String>,
    phase: StepPhase,
) -> BTreeMap<String, Option<String>> {
    let mut env: BTreeMap<_, _> =
        variables.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
    if phase != StepPhase::MakeVenv {
        env.extend(returned_environment(environment, places));
    }
    if environment.kind == EnvironmentKind::Uv && phase != StepPhase::Command {
        env.extend(UV_VARIABLES.map(|(name, value)| (name.to_owned(), Some(value.to_owned()))));
    }
    env
}

fn owned<'a>(words: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    words.into_iter().map(str::to_owned).collect()
}

/// The paths of a Case are text, and so are those of a Cell.
fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The block of that kind with its defaults.
#[cfg(test)]
pub(super) fn environment_of(kind: EnvironmentKind) -> CaseEnvironment {
    CaseEnvironment {
        kind,
        venv: true,
        system_site_packages: false,
        requirements: Vec::new(),
        requirement_files: Vec::new(),
        is_editable: false,
        pip_args: Vec::new(),
        commands: Vec::new(),
        env: BTreeMap::new(),
        timeout_s: 900.0,
        egress: None,
        share: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> ProvisionPlaces {
        ProvisionPlaces {
            env: "/env".into(),
            case_dir: "/case".into(),
            python: "python3".to_owned(),
            path: "/usr/bin:/bin".to_owned(),
        }
    }

    fn full(kind: EnvironmentKind) -> CaseEnvironment {
        CaseEnvironment {
            system_site_packages: true,
            requirements: owned(["a==1", "b"]),
            requirement_files: vec!["r.txt".into(), "more/r.txt".into()],
            is_editable: true,
            pip_args: owned(["--no-deps"]),
            commands: owned(["make it", "echo $HOME"]),
            env: [("A".to_owned(), "1".to_owned())].into(),
            ..environment_of(kind)
        }
    }

    fn planned(environment: &CaseEnvironment) -> Vec<PlannedStep> {
        let ours = [("PIP_INDEX_URL".to_owned(), "https://i.example".to_owned())].into();
        steps(environment, &places(), &ours, None)
    }

    fn argv(environment: &CaseEnvironment) -> Vec<String> {
        planned(environment).iter().map(|step| step.request.argv.join(" ")).collect()
    }

    #[test]
    fn each_kind_has_its_commands_in_order() {
        use EnvironmentKind::{Command, PipVenv, Uv};
        assert_eq!(argv(&environment_of(PipVenv)), ["python3 -m venv --clear /env"]);
        let pip = "/env/bin/python -m pip install --disable-pip-version-check -q --no-deps";
        let wanted = [
            "python3 -m venv --clear --system-site-packages /env".to_owned(),
            format!("{pip} a==1 b"),
            format!("{pip} -r /case/r.txt"),
            format!("{pip} -r /case/more/r.txt"),
            format!("{pip} -e ."),
            "make it".to_owned(),
            "echo $HOME".to_owned(),
        ];
        assert_eq!(argv(&full(PipVenv)), wanted);
        assert_eq!(argv(&environment_of(Uv)), ["uv venv --clear --python python3 /env"]);
        let pip = "uv pip install --python /env/bin/python -q --no-deps";
        let wanted = [
            "uv venv --clear --python python3 /env --system-site-packages".to_owned(),
            format!("{pip} a==1 b"),
            format!("{pip} -r /case/r.txt"),
            format!("{pip} -r /case/more/r.txt"),
            format!("{pip} -e ."),
            "make it".to_owned(),
            "echo $HOME".to_owned(),
        ];
        assert_eq!(argv(&full(Uv)), wanted);
        assert_eq!(argv(&full(Command)), ["make it", "echo $HOME"]);
    }

    #[test]
    fn each_word_is_one_argument_and_only_commands_have_a_shell() {
        let mut environment = full(EnvironmentKind::PipVenv);
        environment.requirements = owned(["a >= 1; python_version > '3'"]);
        let steps = planned(&environment);
        assert_eq!(steps[1].request.argv.last().unwrap(), "a >= 1; python_version > '3'");
        for PlannedStep { phase, request } in steps {
            assert_eq!(request.shell, phase == StepPhase::Command, "{:?}", request.argv);
            assert!(request.access.shows_case && request.cwd.is_none() && request.stdin.is_empty());
        }
    }

    #[test]
    fn the_interpreter_is_that_of_the_container() {
        let places = ProvisionPlaces { python: "/opt/python".to_owned(), ..places() };
        for (kind, at) in [(EnvironmentKind::PipVenv, 0), (EnvironmentKind::Uv, 4)] {
            let steps = steps(&environment_of(kind), &places, &BTreeMap::new(), None);
            assert_eq!(steps[0].request.argv[at], "/opt/python");
        }
    }

    #[test]
    fn an_inert_block_plans_and_returns_nothing() {
        for kind in [EnvironmentKind::PipVenv, EnvironmentKind::Uv] {
            let inert = CaseEnvironment { venv: false, ..full(kind) };
            assert!(planned(&inert).is_empty());
            assert!(returned_environment(&inert, &places()).is_empty());
        }
    }

    #[test]
    fn a_virtual_environment_comes_first_and_then_the_variables_of_the_case() {
        let some = |value: &str| Some(value.to_owned());
        let of = |environment: &CaseEnvironment| returned_environment(environment, &places());
        let wanted = [
            ("A", some("1")),
            ("PATH", some("/env/bin:/usr/bin:/bin")),
            ("PYTHONHOME", None),
            ("PYTHONPATH", None),
            ("VIRTUAL_ENV", some("/env")),
        ];
        let wanted = wanted.map(|(name, value)| (name.to_owned(), value)).into();
        assert_eq!(of(&full(EnvironmentKind::PipVenv)), wanted);
        assert_eq!(of(&full(EnvironmentKind::Uv)), wanted);
        let alone = [("A".to_owned(), some("1"))].into();
        assert_eq!(of(&full(EnvironmentKind::Command)), alone);
        let mut own = full(EnvironmentKind::Uv);
        own.env = [("PATH".to_owned(), "/mine".to_owned())].into();
        assert_eq!(of(&own)["PATH"], some("/mine"));
    }

    #[test]
    fn a_command_sees_what_is_returned_once_there_is_an_environment() {
        let mut environment = full(EnvironmentKind::Uv);
        environment.env =
            ["UV_LINK_MODE", "PIP_INDEX_URL"].map(|name| (name.to_owned(), "x".to_owned())).into();
        let steps = planned(&environment);
        let value = |step: usize, name: &str| steps[step].request.env.get(name).cloned().flatten();
        assert_eq!(value(0, "PIP_INDEX_URL").unwrap(), "https://i.example");
        assert_eq!(value(0, "VIRTUAL_ENV"), None);
        assert_eq!(value(1, "VIRTUAL_ENV").unwrap(), "/env");
        assert_eq!(value(1, "PIP_INDEX_URL").unwrap(), "x");
        for step in [0, 1] {
            assert_eq!(value(step, "UV_LINK_MODE").unwrap(), "copy");
            assert_eq!(value(step, "UV_PYTHON_DOWNLOADS").unwrap(), "never");
        }
        assert_eq!(value(5, "UV_LINK_MODE").unwrap(), "x");
        assert_eq!(value(5, "UV_PYTHON_DOWNLOADS"), None);
    }
}
