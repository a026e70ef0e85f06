//! What is installed for an agent, into a virtual environment of its own.

use std::time::SystemTime;

use super::base::{AgentKey, Base, ReachedNetwork};
use super::deps::{AGENT_VENV, VENV, agent_install_environment};
use super::error::RepositoryError;
use super::install::{Install, clear_tmp};
use super::phases::{BaseRequest, MadeBase, Repositories, room, shorter};
use crate::evaluation::cache::is_raised;
use crate::evaluation::trees::AGENT;
use cofferdam_core::WorkspacePath;
use cofferdam_tree::StopCheck;

impl Repositories {
    /// Installs what an agent needs: the commands of `request`, which sees no repository and no variable of the
    /// task. It is kept as bases are, for all tasks.
    ///
    /// # Errors
    /// A command failed, or there is no sandbox.
    pub fn agent_tools(&self, request: &BaseRequest<'_>) -> Result<MadeBase, RepositoryError> {
        let settings = &self.settings;
        let key = AgentKey {
            owner: request.owner,
            install: request.install,
            env: &settings.install_env,
            network: ReachedNetwork::of(&settings.install_network),
            rootfs: &request.root.name,
        };
        self.kept_or_made(request, key.digest()?, |digest| self.make_tools(request, digest))
    }

    fn make_tools(
        &self,
        request: &BaseRequest<'_>,
        digest: String,
    ) -> Result<Base, RepositoryError> {
        let settings = &self.settings;
        let is_over = || is_raised(request.cancel) || request.deadline.passed();
        let stop = StopCheck(&is_over);
        let mut tree = request.root.trees.create(room(settings.base_bytes_max))?;
        tree.show_agent()?;
        let mut env = settings.install_env.clone();
        env.extend(agent_install_environment());
        let egress = self.install_grant(request)?;
        let install = Install {
            commands: request.install,
            env: &env,
            place: &WorkspacePath::default(),
            egress: egress.as_ref(),
            bounds: settings.bounds,
            cancel: request.cancel,
            deadline: shorter(settings.install_timeout, request.deadline),
            goes_on: false,
            output: request.output.clone(),
        };
        install.make_venv(&tree, AGENT_VENV, Some(VENV))?;
        install.run_all(&tree)?;
        clear_tmp(&tree, stop)?;
        // Where nothing made it, the agent is shown an empty directory.
        tree.make_directory(&format!("{AGENT}/venv"))?;
        tree.open_directory(&format!("{AGENT}/venv"))?;
        let files = tree.freeze(stop)?;
        let made_at = SystemTime::now();
        Ok(Base { files, base_commit: String::new(), digest, made_at, install_failure: None })
    }
}
