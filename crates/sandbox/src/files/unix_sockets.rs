//! The paths of the host's Unix sockets, as listed in this network namespace.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// More than any host has in its system directories.
const SOCKETS_MAX: usize = 4096;

/// The absolute paths that sockets are bound to, sorted, each once.
pub fn bound_paths() -> io::Result<Vec<PathBuf>> {
    Ok(parse(&std::fs::read("/proc/net/unix")?))
}

/// Parses the table. The path is the eighth field, and may contain spaces.
fn parse(table: &[u8]) -> Vec<PathBuf> {
    let path = |line: &[u8]| {
        let mut rest = line;
        for _ in 0..7 {
            rest = rest.trim_ascii_start();
            let end = rest.iter().position(|byte| *byte == b' ')?;
            rest = &rest[end..];
        }
        let path = rest.get(1..).filter(|path| path.first() == Some(&b'/'))?;
        Some(PathBuf::from(OsStr::from_bytes(path)))
    };
    let lines = table.split(|byte| *byte == b'\n');
    let mut paths: Vec<PathBuf> = lines.filter_map(path).take(SOCKETS_MAX).collect();
    paths.sort();
    paths.dedup();
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_paths_are_read() {
        let table = b"\
Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 14207 /opt/a b/socket
0000000000000000: 00000003 00000000 00000000 0001 03  1212
0000000000000000: 00000002 00000000 00010000 0001 01 142 @/abstract
0000000000000000: 00000002 00000000 00010000 0001 01 143 relative
0000000000000000: 00000002 00000000 00010000 0001 01 144 /etc/socket
0000000000000000: 00000002 00000000 00010000 0001 01 145 /etc/socket
";
        assert_eq!(parse(table), ["/etc/socket", "/opt/a b/socket"].map(PathBuf::from));
    }
}
