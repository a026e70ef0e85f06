//! The agents that a matrix may name although the Case does not define them.

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
