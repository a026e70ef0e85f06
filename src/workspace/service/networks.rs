//! What the programs of workspaces may reach, as requests see and change it.

use super::WorkspaceService;
use super::registry::Kept;
use crate::config::TokenName;
use crate::workspace::error::EngineError;
use crate::workspace::request::check_network;
use crate::workspace::view::EgressPage;
use cofferdam_core::NetworkObject;

impl WorkspaceService {
    /// What the programs of a workspace may reach; none if they have no network. It is no use of the
    /// workspace.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn network(
        &self,
        owner: &TokenName,
        id: &str,
    ) -> Result<Option<NetworkObject>, EngineError> {
        Ok(match self.reaping.registry.look(owner, id)? {
            Kept::Live(live) => live.network.object(),
            Kept::Parked(parked) => parked.record.settings.network.clone(),
        })
    }

    /// Lets the programs of a workspace reach what `network` names instead. A parked one is woken.
    ///
    /// # Errors
    /// A field is wrong, a host or a secret is not allowed, or there is no such workspace.
    pub fn replace_network(
        &self,
        owner: &TokenName,
        id: &str,
        network: NetworkObject,
    ) -> Result<NetworkObject, EngineError> {
        let used = self.enter(owner, id)?;
        let live = used.workspace();
        check_network("", &network, &live.settings.env)?;
        self.settings.network.check("", &network, owner.as_str())?;
        let shown = network.withheld();
        live.network.replace(network)?;
        Ok(shown)
    }

    /// At most `limit` records of what the programs of a workspace asked to reach since it was created
    /// or woken, after the first `before`. It is no use of the workspace.
    ///
    /// # Errors
    /// There is no such workspace.
    pub fn egress(
        &self,
        owner: &TokenName,
        id: &str,
        limit: usize,
        before: Option<u64>,
    ) -> Result<EgressPage, EngineError> {
        let live = self.reaping.registry.find_live(owner, id)?;
        let all = live.map(|live| live.network.records()).unwrap_or_default();
        let begin = before.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        let end = begin.saturating_add(limit);
        let next_cursor = (end < all.len()).then(|| end.to_string());
        let egress = all.into_iter().skip(begin).take(limit).collect();
        Ok(EgressPage { egress, next_cursor })
    }
}
