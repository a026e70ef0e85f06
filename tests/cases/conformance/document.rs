//! The table of docs/cases.md is that of the suite.

use super::{commands, ends, files, lifecycle, limits};

const DOCUMENT: &str = include_str!("../../../docs/cases.md");
const HEAD: &str = "| guarantee | sandboxed | local |\n|---|---|---|\n";

#[test]
fn the_document_has_every_row_of_the_suite() {
    let mut both: Vec<&str> = Vec::new();
    both.extend(commands::rows().iter().chain(&ends::rows()).map(|row| row.guarantee));
    both.extend(files::guarantees());
    both.extend(lifecycle::GUARANTEES);
    let mut wanted: String = both.iter().map(|row| format!("| {row} | yes | yes |\n")).collect();
    for (guarantee, control) in limits::guarantees() {
        wanted += &format!("| {guarantee} | yes | not enforced: `{control}` |\n");
    }
    let table = DOCUMENT.split_once(HEAD).expect("the table of conformance").1;
    let table = table.split_once("\n\n").map_or(table, |(table, _)| table);
    assert_eq!(table.trim_end(), wanted.trim_end(), "\n{HEAD}{wanted}");
}
