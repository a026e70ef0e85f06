//! Files that an agent sees beside its sandbox, so that they are no part of its difference.

use std::path::Path;

use uuid::Uuid;

use super::end::HarnessError;
use crate::case::cell::CellExecutor;

/// The temporary directory of every Cell, as seen from its sandbox.
const TMP: &str = "../tmp";
const MODE: u32 = 0o644;

/// Puts a file into the temporary directory of the Cell, under a name that ends with `ending`. Returns its path as
/// commands see it.
pub(super) fn put_beside(
    cell: &dyn CellExecutor,
    ending: &str,
    content: &[u8],
) -> Result<String, HarnessError> {
    // Nothing that stands there may get in the way.
    let name = format!("{}-{ending}", Uuid::new_v4().simple());
    cell.put(&format!("{TMP}/{name}"), content, MODE)?;
    let sandbox = cell.describe()?.sandbox;
    let top = sandbox.parent().unwrap_or(Path::new("/"));
    Ok(top.join("tmp").join(name).display().to_string())
}
