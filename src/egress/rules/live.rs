//! The network of a sandbox or workspace while it may change.

use std::sync::Arc;

use tokio::sync::watch;

use super::network::NetworkRules;
use crate::egress::hosts::allow_list::AllowList;

/// The network of a sandbox or workspace, which can be replaced while it is used.
#[derive(Debug)]
pub struct LiveNetwork(watch::Sender<Arc<NetworkRules>>);

impl LiveNetwork {
    /// Begins with `rules`.
    pub fn new(rules: Arc<NetworkRules>) -> Self {
        Self(watch::Sender::new(rules))
    }

    /// What holds now.
    pub fn current(&self) -> Arc<NetworkRules> {
        Arc::clone(&self.0.borrow())
    }

    /// Lets `rules` hold from now on.
    pub fn replace(&self, rules: Arc<NetworkRules>) {
        self.0.send_replace(rules);
    }

    /// Waits until `allows` no longer holds for what holds: it may have been replaced since it was asked.
    pub async fn withdrawn(&self, allows: impl Fn(&NetworkRules) -> bool) {
        let mut changes = self.0.subscribe();
        loop {
            let now = Arc::clone(&changes.borrow_and_update());
            if !allows(&now) {
                return;
            }
            if changes.changed().await.is_err() {
                // The network does not change any more.
                std::future::pending::<()>().await;
            }
        }
    }
}

impl From<AllowList> for LiveNetwork {
    fn from(allow: AllowList) -> Self {
        Self::new(Arc::new(NetworkRules::of_hosts(allow)))
    }
}
