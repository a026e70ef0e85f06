//! `cofferdam exec --overlay`: a command on a view of directories, which is printed, and committed if wanted.

mod changes;
mod commit;
mod directories;
mod links;
mod listing;
pub mod options;
mod patch;
mod protected;
mod states;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cli::failure::Failure;
use crate::cli::foreground::Foreground;
use crate::executor::{SandboxExecutor, put_home_files};
use changes::{DirectoryChanges, PathDifference, find_changes};
use cofferdam_core::sync::retained::Retained;
use cofferdam_core::{Limits, NotStarted, Outcome, OutputSink, RunReport, RunSpec, SetupFailure};
use cofferdam_sandbox::engine::{DiskSpace, HostId, OverlaidDirs, OverlaidSource, RootSource};
use cofferdam_tree::{Owner, StopCheck};
use commit::{CommitPart, CommitRules, commit, recover};
use directories::{TriedDirectory, open_all};
use links::LinkRules;
use listing::{write_json, write_lines};
use options::OverlayOptions;
use protected::ProtectRules;
use states::SeenTree;

/// A command that is tried on directories.
#[derive(Debug)]
pub struct OverlayTrial {
    directories: Vec<TriedDirectory>,
    protect: ProtectRules,
    links: LinkRules,
    is_commit: bool,
    changes: Option<File>,
    patch: Option<File>,
    /// What is there once the command has begun.
    begun: Option<BegunTrial>,
}

#[derive(Debug)]
struct BegunTrial {
    // Dropped before the executor.
    overlaid: OverlaidDirs,
    seen: Vec<SeenTree>,
    host_id: u32,
    executor: SandboxExecutor,
}

impl OverlayTrial {
    /// The trial that `options` ask for, if any.
    pub fn of(
        options: &OverlayOptions,
        root: &RootSource,
        other_targets: Vec<PathBuf>,
    ) -> Result<Option<Self>, Failure> {
        if options.overlay.is_empty() {
            return Ok(None);
        }
        let directories = open_all(&options.overlay)?;
        let own = directories.iter().map(|directory| directory.path().to_owned());
        let links = LinkRules::new(root.clone(), own.chain(other_targets).collect());
        let protect = ProtectRules::parse(&options.protect, &options.unprotect)?;
        let (changes, patch) = (None, None);
        let is_commit = options.commit;
        Ok(Some(Self { directories, protect, links, is_commit, changes, patch, begun: None }))
    }

    /// Creates the files for the results by `create`, before the command: it may plant links.
    pub fn create_files(
        &mut self,
        options: &OverlayOptions,
        create: impl Fn(&str, &Path) -> Result<File, Failure>,
    ) -> Result<(), Failure> {
        let changes = options.changes.as_deref().map(|path| create("--changes", path));
        let patch = options.patch.as_deref().map(|path| create("--patch", path));
        (self.changes, self.patch) = (changes.transpose()?, patch.transpose()?);
        Ok(())
    }

    /// Where the command begins, unless another directory is given.
    pub fn workdir(&self) -> &Path {
        self.directories.first().map_or(Path::new("/workspace"), TriedDirectory::path)
    }

    /// Runs the command of `spec` on a view of the directories.
    pub fn run(
        &mut self,
        executor: SandboxExecutor,
        spec: RunSpec,
        foreground: &Foreground,
        sink: Box<dyn OutputSink>,
    ) -> Result<RunReport, NotStarted> {
        let is_stopped = || foreground.signal_code().is_some();
        let stop = StopCheck(&is_stopped);
        if self.is_commit {
            for directory in &self.directories {
                say(&recover(directory)?);
            }
        }
        let host_id = Arc::new(executor.acquire_host_id()?);
        let overlaid = self.mount(&spec, host_id.id(), stop)?;
        let looked = overlaid.directories().iter().filter(|_| self.is_commit);
        let seen = looked.map(|directory| SeenTree::look(directory.base(), stop));
        let seen = seen.collect::<Result<_, _>>()?;
        let mounts = overlaid.mounts()?;
        let lender = Retained::of(Arc::clone(&host_id) as _);
        let report = executor.run_mounted(
            spec,
            mounts,
            host_id.id(),
            lender,
            &foreground.watch(),
            Some(sink),
        )?;
        if executor.sandbox().metrics().undying > 0 {
            let words = "the command was killed and is not dead yet; its changes are not looked at";
            return Err(SetupFailure::from_words("kill", words).into());
        }
        let host_id = host_id.id().id();
        self.begun = Some(BegunTrial { overlaid, seen, host_id, executor });
        Ok(report)
    }

    /// Mounts the overlays, with the mount points of what else `spec` shows.
    fn mount(
        &self,
        spec: &RunSpec,
        host_id: &HostId,
        stop: StopCheck<'_>,
    ) -> Result<OverlaidDirs, SetupFailure> {
        let Limits { disk_bytes_max: bytes, disk_inodes_max: inodes, .. } = spec.limits;
        let room = DiskSpace { bytes, inodes };
        let overlaid = OverlaidDirs::mount(self.sources(stop)?, room, host_id)?;
        for bind in &spec.binds {
            overlaid.make_point(&bind.target, bind.source.is_dir())?;
        }
        for tmpfs in &spec.tmpfs {
            overlaid.make_point(&tmpfs.target, true)?;
        }
        if let Some(egress) = &spec.egress {
            let owner = Owner { uid: host_id.id(), gid: host_id.id() };
            put_home_files(overlaid.scratch(), owner, egress.as_ref());
        }
        Ok(overlaid)
    }

    fn sources(&self, stop: StopCheck<'_>) -> Result<Vec<OverlaidSource>, SetupFailure> {
        let source = |directory: &TriedDirectory| {
            let target = directory.path().to_owned();
            let mut source = OverlaidSource::new(directory.as_fd(), target)?;
            let protected = self.protect.find(source.base(), stop)?;
            source.protect(protected);
            Ok(source)
        };
        self.directories.iter().map(source).collect()
    }

    /// Prints and writes what the command changed, and commits it if that is wanted and `outcome` allows it.
    pub fn finish(mut self, outcome: Outcome, foreground: &Foreground) -> Result<(), Failure> {
        let Some(begun) = self.begun.take() else { return Ok(()) };
        let is_stopped = || foreground.signal_code().is_some();
        let stop = StopCheck(&is_stopped);
        let directories = begun.overlaid.directories().iter();
        let found = directories.map(|directory| find_changes(directory, stop));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        self.tell(&begun, &found, foreground)?;
        if !self.is_commit {
            return Ok(());
        }
        if outcome != (Outcome::Exited { code: 0 }) {
            say(&["not committed: the command did not exit with 0".to_owned()]);
            return Ok(());
        }
        let parts = self.directories.iter().zip(begun.overlaid.directories());
        let parts = parts.zip(found.iter().zip(&begun.seen));
        let parts: Vec<_> = parts
            .map(|((directory, overlaid), (changes, seen))| CommitPart {
                directory,
                overlaid,
                changes,
                seen,
            })
            .collect();
        let several = self.directories.len() > 1;
        let (protect, links, host_id) = (&self.protect, &self.links, begun.host_id);
        say(&commit(&parts, CommitRules { protect, links, host_id, several }, stop)?);
        Ok(())
    }

    /// Prints the changes, and writes the files that are wanted.
    fn tell(
        &mut self,
        begun: &BegunTrial,
        found: &[DirectoryChanges],
        foreground: &Foreground,
    ) -> Result<(), Failure> {
        let listed = self.listed(found);
        let failed = |source| Failure::Write { what: "the changes", source };
        write_lines(&listed, io::stderr().lock()).map_err(failed)?;
        if let Some(file) = self.changes.take() {
            write_json(&listed, file).map_err(failed)?;
        }
        if let Some(file) = self.patch.take() {
            let parts = self.directories.iter().zip(begun.overlaid.directories()).zip(found);
            let parts: Vec<_> =
                parts.map(|((directory, overlaid), found)| (directory, overlaid, found)).collect();
            say(&patch::write_patch(&begun.executor, &parts, &foreground.watch(), file)?);
        }
        Ok(())
    }

    /// All changes, sorted by the bytes of the paths that are printed.
    fn listed(&self, found: &[DirectoryChanges]) -> Vec<(Vec<u8>, PathDifference)> {
        let several = self.directories.len() > 1;
        let mut all = Vec::new();
        for (directory, changes) in self.directories.iter().zip(found) {
            let shown = |(path, difference): (&Vec<u8>, &PathDifference)| {
                (directory.shown(path, several), *difference)
            };
            all.extend(changes.paths.iter().map(shown));
        }
        all.sort_by(|(left, _), (right, _)| left.cmp(right));
        all
    }
}

/// Prints lines about what was done besides.
fn say(lines: &[String]) {
    let text: String = lines.iter().map(|line| format!("cofferdam: {line}\n")).collect();
    // There is no other stream to report an error on.
    let _ = io::stderr().lock().write_all(text.as_bytes());
}
