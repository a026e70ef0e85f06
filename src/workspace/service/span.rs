//! Log lines for the spans that the engine's library is known for, with their names and attributes.

use std::time::Instant;

use super::live::WorkspaceEnd;
use crate::workspace::request::WorkspaceSettings;

/// The target of these lines, for `RUST_LOG`.
const TARGET: &str = "cofferdam::engine";

/// How much of a client's text is logged, bytes.
const TEXT_BYTES_MAX: usize = 256;

/// A piece of work that is logged when it ends.
#[derive(Debug)]
pub struct Span {
    name: &'static str,
    began: Instant,
}

impl Span {
    /// Begins the span `name`.
    pub fn begin(name: &'static str) -> Self {
        Self { name, began: Instant::now() }
    }

    /// Ends `workspace.create`.
    pub fn end_create(self, id: &str, settings: &WorkspaceSettings) {
        log::info!(
            target: TARGET,
            workspace_id = id,
            exec_id = cut(settings.exec_id.as_deref().unwrap_or_default()),
            path = settings.path.as_path().display().to_string(),
            took_ms = self.took_ms();
            "{}", self.name
        );
    }

    /// Ends `workspace.cleanup`.
    pub fn end_cleanup(self, id: &str, why: WorkspaceEnd) {
        log::info!(
            target: TARGET,
            workspace_id = id,
            reason = format!("{why:?}").to_lowercase(),
            took_ms = self.took_ms();
            "{}", self.name
        );
    }

    /// Ends `workspace.run`. `end` is the exit code, and whether the time was over.
    pub fn end_run(self, id: &str, cmd: &str, cwd: &str, end: (i32, bool)) {
        log::info!(
            target: TARGET,
            workspace_id = id,
            cmd = cut(cmd),
            cwd = cut(cwd),
            exit_code = end.0,
            timed_out = end.1,
            took_ms = self.took_ms();
            "{}", self.name
        );
    }

    /// Ends a span that handled `count` files or code blocks.
    pub fn end_counted(self, id: &str, count: usize) {
        log::info!(
            target: TARGET,
            workspace_id = id,
            count = count,
            took_ms = self.took_ms();
            "{}", self.name
        );
    }

    /// Ends `workspace.stage.dir`. The path on the host is empty if the directory came from elsewhere.
    pub fn end_stage_directory(self, id: &str, host_path: &str, to: &str, mount_used: bool) {
        log::info!(
            target: TARGET,
            workspace_id = id,
            host_path = cut(host_path),
            to = cut(to),
            mount_used = mount_used,
            took_ms = self.took_ms();
            "{}", self.name
        );
    }

    /// Ends `workspace.collect`.
    pub fn end_collect(self, id: &str, patterns: usize, count: usize) {
        log::info!(
            target: TARGET,
            workspace_id = id,
            patterns = patterns,
            count = count,
            took_ms = self.took_ms();
            "{}", self.name
        );
    }

    /// Rounds to the microsecond.
    fn took_ms(&self) -> f64 {
        (self.began.elapsed().as_secs_f64() * 1e6).round() / 1e3
    }
}

/// The beginning of `text`.
fn cut(text: &str) -> &str {
    text.get(..text.floor_char_boundary(TEXT_BYTES_MAX)).unwrap_or_default()
}
