//! User namespaces for ID-mapped mounts, which show another user's files as the tenant's.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use crate::pool::namespace_holder::NamespaceHolder;
use crate::sys;
use cofferdam_core::SetupFailure;

/// The owner of a directory, and the host id that it is mapped to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Mapping {
    owner_uid: u32,
    owner_gid: u32,
    host_id: u32,
}

/// The namespaces created so far, one for each owner and host id. They are kept, since a slot runs
/// the same templates again and again.
#[derive(Debug, Default)]
pub struct IdMaps {
    made: Mutex<BTreeMap<Mapping, Arc<OwnedFd>>>,
}

impl IdMaps {
    /// The namespace that maps the owner of `path` to `host_id`; `None` if the file system of `path`
    /// does not support ID-mapped mounts.
    pub fn for_owner_of(
        &self,
        path: &Path,
        host_id: u32,
    ) -> Result<Option<Arc<OwnedFd>>, SetupFailure> {
        let failed = |error: io::Error| {
            SetupFailure::from_io(format!("map owner of {}", path.display()), &error)
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        let mapping = Mapping { owner_uid: metadata.uid(), owner_gid: metadata.gid(), host_id };
        let namespace = self.namespace(mapping)?;
        let usable = sys::can_map_ids(path, namespace.as_fd()).map_err(failed)?;
        Ok(usable.then_some(namespace))
    }

    fn namespace(&self, mapping: Mapping) -> Result<Arc<OwnedFd>, SetupFailure> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(namespace) = made.get(&mapping) {
            return Ok(Arc::clone(namespace));
        }
        let namespace = Arc::new(create(mapping)?);
        made.insert(mapping, Arc::clone(&namespace));
        Ok(namespace)
    }
}

/// An id that no file has. The largest number, -1, is not an id.
const NOBODY: u32 = u32::MAX - 1;

/// Opens the namespace of `holder`, with a map that contains the owner of no file.
pub fn of_no_owner(holder: &NamespaceHolder) -> io::Result<OwnedFd> {
    map_and_open(holder.pid(), Mapping { owner_uid: NOBODY, owner_gid: NOBODY, host_id: NOBODY })
}

/// Creates a namespace. It outlives its only process as long as a descriptor of it is open.
fn create(mapping: Mapping) -> Result<OwnedFd, SetupFailure> {
    NamespaceHolder::start()
        .and_then(|holder| map_and_open(holder.pid(), mapping))
        .map_err(|error| SetupFailure::from_io("id map", &error))
}

fn map_and_open(pid: i32, mapping: Mapping) -> io::Result<OwnedFd> {
    let Mapping { owner_uid, owner_gid, host_id } = mapping;
    fs::write(format!("/proc/{pid}/uid_map"), format!("{owner_uid} {host_id} 1\n"))?;
    fs::write(format!("/proc/{pid}/gid_map"), format!("{owner_gid} {host_id} 1\n"))?;
    Ok(fs::File::open(format!("/proc/{pid}/ns/user"))?.into())
}

/// The descriptors that a plan refers to by number, collected while the plan is built.
#[derive(Debug, Default)]
pub struct ExtraDescriptors {
    held: Vec<Arc<OwnedFd>>,
    raw: Vec<RawFd>,
    first: i32,
}

impl ExtraDescriptors {
    /// The first one gets the number `first` in the sandbox.
    pub fn starting_at(first: i32) -> Self {
        Self { first, ..Self::default() }
    }

    /// Adds one; returns its number in the sandbox.
    pub fn add(&mut self, descriptor: Arc<OwnedFd>) -> i32 {
        let number = self.add_held(descriptor.as_raw_fd());
        self.held.push(descriptor);
        number
    }

    /// As [`ExtraDescriptors::add`] for one that the caller keeps open.
    pub fn add_held(&mut self, descriptor: RawFd) -> i32 {
        self.raw.push(descriptor);
        self.first + i32::try_from(self.raw.len() - 1).unwrap_or(i32::MAX)
    }

    /// Their numbers in this process.
    pub fn raw(&self) -> Vec<RawFd> {
        self.raw.clone()
    }
}
