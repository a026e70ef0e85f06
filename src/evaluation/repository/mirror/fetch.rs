//! Finds the commit of a task, in the mirror or on the server.

use std::os::fd::AsFd;
use std::sync::Arc;

use super::store::{Mirror, MirrorStore, PACKS_MAX};
use crate::egress::{EgressDecision, EgressGrant};
use crate::evaluation::repository::error::RepositoryError;
use crate::evaluation::repository::git::{GitCall, GitSandbox, put_file};
use crate::evaluation::repository::located::{LocatedCommit, MIRROR_PATH, shown_at_mirror};
use crate::evaluation::repository::revision::{RefList, Revision};
use crate::evaluation::trees::WORKSPACE;

/// The bare repository that git fetches into.
const NEW_NAME: &str = "new.git";
const NEW_PATH: &str = "/workspace/new.git";

/// A look for one commit of the repository at `url`.
#[derive(Debug)]
pub struct MirrorFetch<'a> {
    /// Where the mirrors are.
    pub store: &'a MirrorStore,
    /// The key of this one.
    pub key: &'a str,
    /// The repository.
    pub url: &'a str,
    /// git, over an empty file system.
    pub git: GitSandbox<'a>,
    /// What git may reach: the repository's host.
    pub egress: EgressGrant,
    /// The most bytes of a mirror.
    pub bytes_max: u64,
}

impl MirrorFetch<'_> {
    /// Finds the commit that `revision` names. The mirror `before` is used and added to.
    ///
    /// # Errors
    /// The repository has no such commit, or git failed.
    pub fn locate(
        &self,
        revision: &Revision,
        before: Option<Arc<Mirror>>,
    ) -> Result<LocatedCommit, RepositoryError> {
        let before = before.filter(|mirror| mirror.pack_files() < PACKS_MAX);
        if let (Revision::Full(commit), Some(mirror)) = (revision, &before)
            && self.has(mirror, commit)?
        {
            return Ok(LocatedCommit::in_mirror(mirror, commit.clone(), mirror.listed(), true));
        }
        let listed = self.list()?;
        let refs = RefList::parse(&listed);
        let wanted = match revision {
            Revision::Full(commit) => Some(commit.clone()),
            Revision::Name(name) => refs.find(name).map(str::to_owned),
        };
        if let (Some(commit), Some(mirror)) = (&wanted, &before)
            && self.has(mirror, commit)?
        {
            return Ok(LocatedCommit::in_mirror(mirror, commit.clone(), refs, true));
        }
        self.make_repository(before.as_deref())?;
        let commit = self.fetch(revision, wanted.as_deref(), before.as_deref())?;
        self.pack_single_objects(before.as_deref())?;
        if before.as_ref().map_or(0, |mirror| mirror.bytes()) >= self.bytes_max {
            return Err(RepositoryError::TooLarge { bytes_max: self.bytes_max });
        }
        let packs =
            self.git.tree().open_directory(&format!("{WORKSPACE}/{NEW_NAME}/objects/pack"))?;
        let mirror =
            self.store.publish(self.key, before.as_ref(), packs.as_fd(), (&commit, &listed));
        let mirror = mirror.map_err(|error| RepositoryError::Cache(error.to_string()))?;
        Ok(LocatedCommit::in_mirror(&mirror, commit, refs, false))
    }

    /// Whether the mirror has `commit`.
    fn has(&self, mirror: &Mirror, commit: &str) -> Result<bool, RepositoryError> {
        if mirror.has_fetched(commit) {
            return Ok(true);
        }
        let object = format!("{commit}^{{commit}}");
        let binds = vec![shown_at_mirror(mirror.path())];
        let args = vec!["cat-file", "-e", &object];
        let found =
            self.git.run(GitCall { args, git_dir: MIRROR_PATH, binds, ..GitCall::default() });
        match found {
            Ok(_) => Ok(true),
            Err(RepositoryError::CloneFailed { limit: None, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The branches and tags of the server.
    fn list(&self) -> Result<String, RepositoryError> {
        let args = vec!["ls-remote", "--quiet", "--heads", "--tags", "--", self.url];
        let call = GitCall {
            args,
            git_dir: "/tmp/none",
            egress: Some(&self.egress),
            ..GitCall::default()
        };
        let printed = self.git.run(call).map_err(|error| self.denied_or(error))?;
        Ok(String::from_utf8_lossy(&printed).into_owned())
    }

    /// Makes the empty repository, which has the objects of the mirror `before` as well.
    fn make_repository(&self, before: Option<&Mirror>) -> Result<(), RepositoryError> {
        let (tree, place) = (self.git.tree(), format!("{WORKSPACE}/{NEW_NAME}"));
        for directory in ["", "/objects", "/objects/info", "/objects/pack", "/refs"] {
            tree.make_directory(&format!("{place}{directory}"))?;
        }
        put_file(tree, &format!("{place}/HEAD"), b"ref: refs/heads/none\n")?;
        let config = b"[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
        put_file(tree, &format!("{place}/config"), config)?;
        if before.is_some() {
            let alternates = format!("{MIRROR_PATH}/objects\n");
            put_file(tree, &format!("{place}/objects/info/alternates"), alternates.as_bytes())?;
        }
        Ok(())
    }

    /// Fetches the commit, or all refs if it has no known hash or the server refuses it; returns its hash.
    fn fetch(
        &self,
        revision: &Revision,
        wanted: Option<&str>,
        before: Option<&Mirror>,
    ) -> Result<String, RepositoryError> {
        if let Some(commit) = wanted {
            let refspec = format!("+{commit}:refs/commits/{commit}");
            match self.fetch_refs(&refspec, before) {
                Ok(()) => {
                    return self.resolve(commit, before)?.ok_or_else(|| not_found(revision));
                }
                Err(RepositoryError::CloneFailed { limit: None, message }) => {
                    log::debug!("all refs instead of a commit: {message}");
                }
                Err(error) => return Err(error),
            }
        }
        self.fetch_refs("+refs/*:refs/all/*", before)?;
        let hash = wanted.map(str::to_owned).or_else(|| revision.short_hash());
        let hash = hash.ok_or_else(|| not_found(revision))?;
        self.resolve(&hash, before)?.ok_or_else(|| not_found(revision))
    }

    fn fetch_refs(&self, refspec: &str, before: Option<&Mirror>) -> Result<(), RepositoryError> {
        let args = vec![
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-show-forced-updates",
            "--",
            self.url,
            refspec,
        ];
        let binds = before.map(|mirror| shown_at_mirror(mirror.path())).into_iter().collect();
        let egress = Some(&self.egress);
        let call = GitCall { args, git_dir: NEW_PATH, binds, egress, ..GitCall::default() };
        self.git.run(call).map(drop).map_err(|error| self.denied_or(error))
    }

    /// Checks and packs the objects that a server without git, which only serves files, gave one by one:
    /// git checks packs as they come, and a mirror has packs alone.
    fn pack_single_objects(&self, before: Option<&Mirror>) -> Result<(), RepositoryError> {
        let run = |args: &[&'static str]| {
            let binds = before.map(|mirror| shown_at_mirror(mirror.path())).into_iter().collect();
            let args = args.to_vec();
            self.git.run(GitCall { args, git_dir: NEW_PATH, binds, ..GitCall::default() })
        };
        if run(&["count-objects"])?.starts_with(b"0 ") {
            return Ok(());
        }
        run(&["fsck", "--strict", "--no-dangling", "--no-progress", "--no-reflogs"])?;
        run(&["repack", "-a", "-d", "-l", "-q"]).map(drop)
    }

    /// The full hash of the commit that `hash`, whole or its beginning, names.
    fn resolve(
        &self,
        hash: &str,
        before: Option<&Mirror>,
    ) -> Result<Option<String>, RepositoryError> {
        let object = format!("{hash}^{{commit}}");
        let args = vec!["rev-parse", "--quiet", "--verify", &object];
        let binds = before.map(|mirror| shown_at_mirror(mirror.path())).into_iter().collect();
        let call = GitCall { args, git_dir: NEW_PATH, binds, ..GitCall::default() };
        match self.git.run(call) {
            Ok(printed) => Ok(Some(String::from_utf8_lossy(&printed).trim().to_owned())),
            Err(RepositoryError::CloneFailed { limit: None, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// That the host may not be reached, if that is why git failed.
    fn denied_or(&self, error: RepositoryError) -> RepositoryError {
        if !matches!(error, RepositoryError::CloneFailed { limit: None, .. }) {
            return error;
        }
        let records = self.egress.records();
        let denied = records.iter().rev().find(|record| record.decision == EgressDecision::Denied);
        match denied {
            Some(record) => {
                let reason = record.reason.map_or("denied", |reason| reason.word());
                let reason =
                    format!("{}:{} may not be reached: {reason}", record.host, record.port);
                RepositoryError::UrlDenied { reason }
            }
            None => error,
        }
    }
}

fn not_found(revision: &Revision) -> RepositoryError {
    RepositoryError::CommitNotFound { commit: revision.text().to_owned() }
}
