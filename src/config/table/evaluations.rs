//! The variables of evaluations.

use super::egress::HOSTS_WANTED;
use super::variable::DefaultValue::{InWords, Value};
use super::variable::{Variable, VariableGroup, group};

/// What a positive byte count looks like.
const BYTES: &str = "a byte count above 0, as 512MiB";
/// What a number of seconds looks like.
const SECONDS: &str = "a whole number of seconds from 1 to 31536000";
/// What a network object looks like.
pub const NETWORK_WANTED: &str = "a network object of JSON, or the path of a file with one";

group! {
    /// Whether there are evaluations, how many, and how long each step may take.
    EVALUATIONS: "Evaluations", "Agents that are graded on tasks, by `/evaluate` and `cofferdam evaluate`: see
[docs/evaluations.md](evaluations.md).";

    EVAL {
        default: Value("on"),
        wanted: "on or off",
        meaning: "`off` disables `/evaluate` and its like.",
    }
    MAX_CONCURRENT_EVALS {
        default: Value("4"),
        wanted: "a whole number from 1 to 256",
        meaning: "Evaluations that run at once; one more is a 503.",
    }
    SESSION_TTL_SECS {
        default: Value("1800"),
        wanted: SECONDS,
        meaning: "How long an evaluation may take, in seconds.",
    }
    CLONE_TIMEOUT_SECS {
        default: Value("120"),
        wanted: SECONDS,
        meaning: "How long git may take, in seconds.",
    }
    EVAL_INSTALL_TIMEOUT_SECS {
        default: Value("600"),
        wanted: SECONDS,
        meaning: "How long all commands of `install` may take, in seconds.",
    }
    AGENT_TIMEOUT_SECS {
        default: Value("600"),
        wanted: SECONDS,
        meaning: "How long an agent may run, in seconds.",
    }
    TEST_TIMEOUT_SECS {
        default: Value("300"),
        wanted: SECONDS,
        meaning: "How long a test may run, in seconds.",
    }
    MAX_AGENT_CODE_BYTES {
        default: Value("5242880"),
        wanted: BYTES,
        meaning: "Bytes of an agent's program.",
    }
    MAX_OUTPUT_BYTES {
        default: Value("1048576"),
        wanted: BYTES,
        meaning: "Bytes of the output of the agent, and of each test, that are kept.",
    }
    EVAL_RETENTION {
        default: Value("168h"),
        wanted: "a duration above zero, as 90m or 168h",
        meaning: "How long the record of an evaluation is kept after its `SESSION_TTL_SECS`.",
    }
    EVAL_BATCH_MAX {
        default: Value("1000"),
        wanted: "a whole number from 1",
        meaning: "Evaluations of one batch.",
    }
    EVAL_BATCH_BODY_MAX {
        default: Value("64MiB"),
        wanted: BYTES,
        meaning: "Bytes of the request for a batch.",
    }
    AUTH_PUBLIC {
        default: Value("status,metrics"),
        wanted: "status, metrics, both divided by a comma, or none",
        meaning: "What needs no token: `status`, `metrics`, both, or `none`.",
        details: "Without a token they show the state of evaluations alone.",
    }
}

group! {
    /// What an evaluation may use, and where its files are.
    EVALUATION_FILES: "Files of evaluations", "";

    WORKSPACE_BASE {
        default: Value("/tmp/sessions"),
        wanted: "an absolute path",
        meaning: "Where the files of evaluations are while they run.",
        details: "Made with mode 0700. A link, or a directory of another user or with another mode, refuses the start.",
    }
    DISK_QUOTA_MB {
        default: Value("2048"),
        wanted: "a whole number of MiB from 1 to 16777216",
        meaning: "MiB that the agent, and each test, may write.",
    }
    EVAL_BASE_MAX {
        default: Value("8GiB"),
        wanted: BYTES,
        meaning: "Bytes of a repository with what is installed for it.",
    }
    EVAL_MEMORY_MAX {
        default: Value("2GiB"),
        wanted: BYTES,
        meaning: "Memory of each sandbox of an evaluation.",
    }
    EVAL_PIDS_MAX {
        default: Value("512"),
        wanted: "a whole number from 1",
        meaning: "Processes and threads of each sandbox of an evaluation.",
    }
    EVAL_CPUS {
        default: InWords("no limit"),
        example: "1.5",
        wanted: "a number of CPUs above 0, as 1.5",
        meaning: "CPUs of each sandbox of an evaluation, as `1.5`.",
    }
    EVAL_ROOTFS_DIR {
        example: "/var/lib/cofferdam/roots",
        wanted: "a directory",
        meaning: "A directory whose directories are root file systems that requests may name.",
    }
    EVAL_REPO_ROOTS {
        default: InWords("no directory"),
        example: "/srv/repositories",
        wanted: "absolute directories divided by colons",
        meaning: "Directories, separated by colons, below which a task may name a repository by its path.",
    }
    EVAL_ARCHIVE_MAX {
        default: Value("100MiB"),
        wanted: BYTES,
        meaning: "Bytes of a task's archive.",
    }
    EVAL_UNPACKED_MAX {
        default: Value("1GiB"),
        wanted: BYTES,
        meaning: "Bytes of the files in it.",
    }
    EVAL_REPO_MAX {
        default: Value("4GiB"),
        wanted: BYTES,
        meaning: "Bytes that git may fetch.",
    }
    EVAL_PATCH_MAX {
        default: Value("10MiB"),
        wanted: BYTES,
        meaning: "Bytes of an agent's patch.",
    }
    EVAL_CACHE_DIR {
        default: InWords("`cache` in the store"),
        example: "/var/cache/cofferdam/evaluations",
        wanted: "a directory",
        meaning: "Where archives, repositories and bases are kept for later evaluations.",
    }
    EVAL_CACHE_MAX {
        default: Value("20GiB"),
        wanted: BYTES,
        meaning: "Bytes of that cache; the least recently used go.",
    }
    CACHE_SHARED {
        default: Value("off"),
        wanted: "on or off",
        meaning: "`on` lets all tokens share the cache.",
    }
}

group! {
    /// What evaluations may reach.
    EVALUATION_NETWORK: "Network of evaluations", "Entries and network objects as in [docs/egress.md](egress.md). An object is JSON, or the path of a file
with JSON, YAML or TOML, which no sandbox shows.";

    EVAL_AGENT_HOSTS {
        example: "api.example.org,10.1.2.3:8080",
        wanted: HOSTS_WANTED,
        meaning: "Hosts that agents may reach, divided by commas.",
    }
    EVAL_AGENT_NETWORK {
        default: InWords("all of `EVAL_AGENT_HOSTS`"),
        example: "{\"allow\": []}",
        wanted: NETWORK_WANTED,
        meaning: "What an agent may reach whose request names nothing; within `EVAL_AGENT_HOSTS`.",
    }
    EVAL_HOSTS_ALLOW {
        example: "10.1.2.3:8080",
        wanted: HOSTS_WANTED,
        meaning: "Hosts whose address need not be public; of tasks and repositories too.",
    }
    EVAL_INSTALL_HOSTS {
        default: Value("pypi.org,files.pythonhosted.org,registry.npmjs.org,index.crates.io,static.crates.io,crates.io,proxy.golang.org,sum.golang.org,rubygems.org,index.rubygems.org,repo.maven.apache.org,repo1.maven.org"),
        wanted: HOSTS_WANTED,
        meaning: "Hosts that the commands of `install` may reach, divided by commas.",
    }
    EVAL_INSTALL_NETWORK {
        default: InWords("all of `EVAL_INSTALL_HOSTS`"),
        example: "{\"allow\": [\"pypi.org\", \"files.pythonhosted.org\"]}",
        wanted: NETWORK_WANTED,
        meaning: "What the commands of `install` may reach; within `EVAL_INSTALL_HOSTS`.",
    }
    EVAL_CLONE_NETWORK {
        example: "{\"rules\": {\"git.example.org\": [{\"methods\": [\"GET\", \"POST\"]}]}}",
        wanted: NETWORK_WANTED,
        meaning: "Rules over what git sends to the host of a repository, which is all it reaches.",
        details: "With `allow`, repositories of other hosts are refused.",
    }
    EVAL_INSTALL_ENV {
        example: "PIP_RETRIES=2",
        wanted: "NAME=VALUE, or names of variables that are set, divided by commas or spaces",
        meaning: "Variables that the commands of `install` see: `NAME=VALUE`, or the name of one of the service's.",
        details: "What has user info in a URL, or is named as a credential, is not passed on.",
    }
}
