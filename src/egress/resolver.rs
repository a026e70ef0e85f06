//! Names to addresses, by the system: its resolver blocks, so each lookup has a thread, and there is a
//! bound of them.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit, oneshot};
use tokio::time::timeout;

/// The maximum number of lookups at once in this process.
const LOOKUPS_MAX: usize = 64;
/// The maximum number of lookups at once of one proxy.
const PROXY_LOOKUPS_MAX: usize = 8;
/// The maximum number of addresses that are considered.
const ADDRESSES_MAX: usize = 16;

static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// Finds the addresses of a name. Blocks.
pub trait Resolve: Send + Sync {
    /// Returns the addresses, in the order of preference.
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the C library, with `/etc/hosts`.
#[derive(Debug, Clone, Copy)]
pub struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}

/// The lookups of one proxy.
#[derive(Clone)]
pub struct Lookups {
    resolver: Arc<dyn Resolve>,
    permits: Arc<Semaphore>,
}

impl Lookups {
    pub fn new(resolver: Arc<dyn Resolve>) -> Self {
        Self { resolver, permits: Arc::new(Semaphore::new(PROXY_LOOKUPS_MAX)) }
    }

    /// Returns the addresses of `name` in canonical form, or `None` if it has none or they do not come
    /// `within`. A lookup that is given up keeps its permits until the resolver returns.
    pub async fn addresses(&self, name: &str, within: Duration) -> Option<Vec<IpAddr>> {
        let found = timeout(within, self.start(name)).await.ok()??;
        let mut canonical: Vec<IpAddr> = Vec::new();
        for address in found.iter().map(IpAddr::to_canonical) {
            if canonical.len() < ADDRESSES_MAX && !canonical.contains(&address) {
                canonical.push(address);
            }
        }
        Some(canonical).filter(|addresses| !addresses.is_empty())
    }

    async fn start(&self, name: &str) -> Option<Vec<IpAddr>> {
        let own: OwnedSemaphorePermit = Arc::clone(&self.permits).acquire_owned().await.ok()?;
        let shared: SemaphorePermit<'static> = LOOKUPS.acquire().await.ok()?;
        let (answer, answered) = oneshot::channel();
        let (resolver, name) = (Arc::clone(&self.resolver), name.to_owned());
        let lookup = move || {
            // The proxy may have given up.
            let _ = answer.send(resolver.resolve(&name));
            drop((own, shared));
        };
        Builder::new().name("resolve".to_owned()).spawn(lookup).ok()?;
        answered.await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};

    use tokio::runtime::Builder as RuntimeBuilder;

    use super::*;

    /// Answers when it is told to.
    struct Stuck(Mutex<Receiver<()>>);

    impl Resolve for Stuck {
        fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            let _ = self.0.lock().unwrap().recv();
            let mapped = "::ffff:192.0.2.1".parse().unwrap();
            Ok(vec![mapped, "192.0.2.1".parse().unwrap(), mapped])
        }
    }

    fn block_on<T>(work: impl Future<Output = T>) -> T {
        RuntimeBuilder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn the_system_knows_the_names_of_its_hosts_file() {
        let lookups = Lookups::new(Arc::new(SystemResolver));
        let found = block_on(lookups.addresses("localhost", Duration::from_secs(30))).unwrap();
        assert!(found.iter().all(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn lookups_that_hang_are_given_up_and_keep_their_places() {
        let (release, released) = channel();
        let lookups = Lookups::new(Arc::new(Stuck(Mutex::new(released))));
        let soon = Duration::from_millis(5);
        for _ in 0..PROXY_LOOKUPS_MAX + 1 {
            assert_eq!(block_on(lookups.addresses("a.test", soon)), None);
        }
        assert_eq!(lookups.permits.available_permits(), 0);
        drop(release);
        let found = block_on(lookups.addresses("a.test", Duration::from_secs(30)));
        assert_eq!(found, Some(vec!["192.0.2.1".parse().unwrap()]));
    }
}
