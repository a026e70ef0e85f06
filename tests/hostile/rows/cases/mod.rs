//! Agents of Cases that want to pass without mending anything, by the command line.

mod graded;
mod limits;
mod scene;
mod seen;

use crate::Row;

pub const ROWS: &[Row] = &[
    Row {
        id: "W212",
        guarantee: "an agent finds no hidden file of its Case, and a link that it leaves leads no grader to one",
        attack: seen::hidden_files,
    },
    Row {
        id: "W213",
        guarantee: "no report counts that an agent left in the place of a report",
        attack: graded::planted_reports,
    },
    Row {
        id: "W214",
        guarantee: "tests and protected files are the Case's, whatever the agent left in their places or above them",
        attack: graded::files_of_tests,
    },
    Row {
        id: "W215",
        guarantee: "no process of an agent lives while its work is graded",
        attack: graded::processes_that_stay,
    },
    Row {
        id: "W216",
        guarantee: "what an agent or its code writes to the environment reaches no grader and no other trial",
        attack: graded::writes_to_the_environment,
    },
    Row {
        id: "W217",
        guarantee: "an agent and graders see no variable of the supervisor, and none of provisioning's",
        attack: seen::variables,
    },
    Row {
        id: "W218",
        guarantee: "the memory, the processes and the disk of an agent end at the limits of its Case",
        attack: limits::amounts,
    },
];
