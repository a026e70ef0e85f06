//! Tasks in boxes on this host: found, filled, run, looked at.

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use super::sandboxed::Sandboxed;
use cofferdam_core::executor::{
    COMMAND_PATH, Capabilities, Executor, FoundProgram, Room, Task, Unavailable,
};
use cofferdam_core::{
    Limits, NotStarted, OutputSink, RunReport, RunSpec, SetupFailure, Watch, WorkspaceFill,
};
use cofferdam_sandbox::{HostId, LocatedProgram, SandboxFs};
use cofferdam_tree::Owner;

/// Files in memory take whole ones.
const PAGE_BYTES: u64 = 4096;

impl Executor for Sandboxed {
    fn describe(&self) -> Result<Capabilities, Unavailable> {
        let sandbox = self.sandbox();
        let not_enforced = sandbox.not_enforced().to_vec();
        Ok(Capabilities { enforced: sandbox.enforced(), not_enforced })
    }

    fn find_program(&self, name: &str) -> Result<Option<FoundProgram>, SetupFailure> {
        for path in places_of(name) {
            if let Some(LocatedProgram { target, file }) = self.sandbox().locate_program(&path)? {
                let (path, target) = (path.to_str(), target.to_str());
                // A file that no result can name counts as none.
                let (Some(path), Some(target)) = (path, target) else { continue };
                return Ok(Some(FoundProgram { path: path.into(), target: target.into(), file }));
            }
        }
        Ok(None)
    }

    fn execute(
        &self,
        task: Task<'_>,
        watch: &Watch,
        mut sink: Option<Box<dyn OutputSink>>,
    ) -> Result<RunReport, NotStarted> {
        let began = Instant::now();
        let Task { mut spec, room, retained, fill, collect } = task;
        let host_id = Arc::new(self.lend_id()?);
        let fs = self.file_system(&mut spec, room, host_id.id())?;
        fill(fs.workspace(false)?.as_fd(), Owner { uid: fs.tenant(), gid: fs.tenant() })?;
        // Before the program begins: the directory itself, whatever the tenant makes of its path.
        let workspace = fs.workspace(false)?;
        let running = self.sandbox().start(spec, fs, retained.and(host_id), began)?;
        // Closed by then: whoever closes the last of a file system waits until it is freed.
        running.supervise_and(watch, &mut sink, move || collect(workspace.as_fd()))
    }
}

impl Sandboxed {
    /// The file system of a box for `spec`, with `room` and the program in it where that has to be.
    fn file_system(
        &self,
        spec: &mut RunSpec,
        room: Room,
        host_id: &HostId,
    ) -> Result<SandboxFs, SetupFailure> {
        let sandbox = self.sandbox();
        let copied = sandbox.copied_bytes(&spec.program)?;
        let bytes = room.bytes.saturating_add(copied.next_multiple_of(PAGE_BYTES));
        let limits = Limits {
            disk_bytes_max: spec.limits.disk_bytes_max.saturating_add(bytes),
            disk_inodes_max: spec.limits.disk_inodes_max.saturating_add(room.inodes),
            ..spec.limits.clone()
        };
        let fs = sandbox.create_fs(&limits, host_id)?;
        spec.workspace = WorkspaceFill::Own;
        spec.program = sandbox.keep_program(std::mem::take(&mut spec.program), copied, &fs)?;
        Ok(fs)
    }
}

/// Where a program called `name` may be.
fn places_of(name: &str) -> Vec<PathBuf> {
    match name {
        impossible if impossible.is_empty() || impossible.contains('\0') => Vec::new(),
        // Below a working directory, in which there is nothing yet.
        relative if !relative.starts_with('/') && relative.contains('/') => Vec::new(),
        absolute if absolute.starts_with('/') => {
            let path = Path::new(absolute);
            if path.starts_with("/workspace") { Vec::new() } else { vec![path.to_owned()] }
        }
        bare => COMMAND_PATH.split(':').map(|directory| Path::new(directory).join(bare)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_looked_for_in_the_fixed_path_and_others_only_at_their_place() {
        for (name, places) in [
            ("", &[][..]),
            ("a\0b", &[]),
            ("./python", &[]),
            ("bin/python", &[]),
            ("/opt/a", &["/opt/a"]),
            ("/workspace/a", &[]),
            ("//workspace/./a", &[]),
            ("/workspaces/a", &["/workspaces/a"]),
            (
                "a",
                &[
                    "/usr/local/sbin/a",
                    "/usr/local/bin/a",
                    "/usr/sbin/a",
                    "/usr/bin/a",
                    "/sbin/a",
                    "/bin/a",
                ],
            ),
        ] {
            assert_eq!(places_of(name), places.iter().map(PathBuf::from).collect::<Vec<_>>());
        }
    }
}
