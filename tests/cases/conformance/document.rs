//! The table of docs/cases.md is that of the suite.

use super::{commands, ends, files, lifecycle, limits};

const DOCUMENT: &str = include_str!("../../../docs/cases.md");
const HEAD: &str = "| guarantee | sandboxed | local | container |\n|---|---|---|---|\n";

#[test]
fn the_document_has_every_row_of_the_suite() {
    let mut all: Vec<&str> = Vec::new();
    all.extend(commands::rows().iter().chain(&ends::rows()).map(|row| row.guarantee));
    all.extend(files::guarantees());
    all.extend(lifecycle::GUARANTEES);
    let mut wanted: String =
        all.iter().map(|row| format!("| {row} | yes | yes | yes |\n")).collect();
    for (guarantee, control, in_container) in limits::guarantees() {
        wanted += &format!("| {guarantee} | yes | not enforced: `{control}` | {in_container} |\n");
    }
    let table = DOCUMENT.split_once(HEAD).expect("the table of conformance").1;
    let table = table.split_once("\n\n").map_or(table, |(table, _)| table);
    assert_eq!(table.trim_end(), wanted.trim_end(), "\n{HEAD}{wanted}");
}
