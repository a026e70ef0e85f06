//! The agents that a matrix may name although the Case does not define them. Such a Case is valid, so that a matrix can be
//! shared; a Cell of one fails with `harness.failed`, since nothing says how to run it.

/// Their names, those that upstream's example Cases use among them.
const KNOWN_AGENTS: [&str; 8] = [
    "aider",
    "claude-code",
    "claude-code-stream",
    "codex",
    "droid",
    "droid-fast",
    "echo",
    "gemini",
];

/// Whether an agent of this name is known.
pub fn is_known_agent(name: &str) -> bool {
    KNOWN_AGENTS.contains(&name)
}
