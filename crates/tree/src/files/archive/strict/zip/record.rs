//! One record of the central directory.

use std::path::Path;

use crate::files::error::FilesError;

/// The fixed part of a record of the central directory, bytes.
pub(super) const RECORD_BYTES: usize = 46;
/// The fixed part of a local header, bytes.
pub(super) const LOCAL_BYTES: usize = 30;
const RECORD_MAGIC: u32 = 0x0201_4b50;
const LOCAL_MAGIC: u32 = 0x0403_4b50;
/// The value of a field whose real value is in the extra data.
const IN_EXTRA: u32 = u32::MAX;
/// The extra data with large sizes.
const ZIP64: u16 = 1;
/// Systems whose attributes have a mode: Unix and macOS.
const UNIX: [u8; 2] = [3, 19];
const DOS_DIRECTORY: u32 = 0x10;
const ENCRYPTED: u16 = 1;
/// Seconds from 1970 to 1980, the year 0 of DOS.
const DOS_EPOCH: u64 = 315_532_800;
/// The local name is not the one of the central directory: programs would unpack different files.
const TWO_NAMES: &str = "it has two different names";

/// The little-endian number at `at`, or 0 beyond the end.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    let field = bytes.get(at..at + 2).and_then(|field| field.try_into().ok());
    field.map_or(0, u16::from_le_bytes)
}

/// As [`u16_at`].
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let field = bytes.get(at..at + 4).and_then(|field| field.try_into().ok());
    field.map_or(0, u32::from_le_bytes)
}

/// As [`u16_at`].
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let field = bytes.get(at..at + 8).and_then(|field| field.try_into().ok());
    field.map_or(0, u64::from_le_bytes)
}

/// An entry, as its record in the central directory says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ZipRecord {
    pub(super) name: Vec<u8>,
    /// 0 stored, 8 deflated.
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) packed_bytes: u64,
    pub(super) bytes: u64,
    /// Where its local header stands.
    pub(super) header_at: u64,
    /// File type and permissions; 0 where its system has none.
    pub(super) mode: u32,
    pub(super) is_dos_directory: bool,
    /// Seconds since 1970.
    pub(super) modified: u64,
}

impl ZipRecord {
    /// The lengths of name, extra data and comment after the fixed part `fixed`.
    pub(super) fn lengths(fixed: &[u8]) -> Result<[usize; 3], FilesError> {
        if u32_at(fixed, 0) != RECORD_MAGIC {
            return Err(FilesError::archive("its directory is damaged", Path::new("")));
        }
        Ok([28, 30, 32].map(|at| usize::from(u16_at(fixed, at))))
    }

    /// Decodes the record with the fixed part `fixed`.
    pub(super) fn decode(fixed: &[u8], name: &[u8], extra: &[u8]) -> Result<Self, &'static str> {
        if u16_at(fixed, 8) & ENCRYPTED != 0 {
            return Err("it is encrypted");
        }
        let method = u16_at(fixed, 10);
        if !matches!(method, 0 | 8) {
            return Err("its compression is not deflate");
        }
        let system = fixed.get(5).copied().unwrap_or_default();
        let attributes = u32_at(fixed, 38);
        let mut large = Zip64(zip64(extra));
        Ok(Self {
            name: name.to_vec(),
            method,
            crc: u32_at(fixed, 16),
            // In this order in the extra data.
            bytes: large.or_next(u32_at(fixed, 24))?,
            packed_bytes: large.or_next(u32_at(fixed, 20))?,
            header_at: large.or_next(u32_at(fixed, 42))?,
            mode: if UNIX.contains(&system) { attributes >> 16 } else { 0 },
            is_dos_directory: attributes & DOS_DIRECTORY != 0,
            modified: seconds(u16_at(fixed, 14), u16_at(fixed, 12)),
        })
    }

    /// How many bytes after the local header `local` the contents begin: its name and extra data. The name
    /// is checked by [`check_name`](Self::check_name).
    pub(super) fn contents_after(&self, local: &[u8]) -> Result<u64, &'static str> {
        if u32_at(local, 0) != LOCAL_MAGIC {
            return Err("its header is damaged");
        }
        if usize::from(u16_at(local, 26)) != self.name.len() {
            return Err(TWO_NAMES);
        }
        Ok(u64::from(u16_at(local, 26)) + u64::from(u16_at(local, 28)))
    }

    pub(super) fn check_name(&self, local_name: &[u8]) -> Result<(), &'static str> {
        if local_name == self.name { Ok(()) } else { Err(TWO_NAMES) }
    }
}

/// Numbers of the extra data that are still to be used.
struct Zip64<'extra>(&'extra [u8]);

impl Zip64<'_> {
    fn or_next(&mut self, number: u32) -> Result<u64, &'static str> {
        if number != IN_EXTRA {
            return Ok(u64::from(number));
        }
        let (next, rest) = self.0.split_at_checked(8).ok_or("a large size is missing")?;
        self.0 = rest;
        Ok(u64_at(next, 0))
    }
}

/// The field of `extra` with large sizes, or nothing.
fn zip64(mut extra: &[u8]) -> &[u8] {
    while extra.len() >= 4 {
        let end = 4 + usize::from(u16_at(extra, 2));
        let Some((field, rest)) = extra.split_at_checked(end) else { break };
        if u16_at(field, 0) == ZIP64 {
            return field.get(4..).unwrap_or_default();
        }
        extra = rest;
    }
    &[]
}

/// The time of DOS as seconds since 1970, as if it were UTC.
fn seconds(date: u16, time: u16) -> u64 {
    let [years, month, day] =
        [date >> 9, (date >> 5 & 15).clamp(1, 12), (date & 31).max(1)].map(u64::from);
    let [hours, minutes, pairs] = [time >> 11, time >> 5 & 63, time & 31].map(u64::from);
    let before = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    // 1980 is a leap year, 2100 is not: it is beside what counts.
    let is_leap = years % 4 == 0;
    let days_of_months = usize::try_from(month - 1).ok().and_then(|month| before.get(month));
    let days = years * 365
        + years.div_ceil(4)
        + days_of_months.copied().unwrap_or_default()
        + u64::from(is_leap && month > 2)
        + day
        - 1;
    DOS_EPOCH + days * 86_400 + hours * 3600 + minutes * 60 + pairs * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_dos_are_seconds_since_1970() {
        for (year, month, day, hours, want) in [
            (1980_u16, 1_u16, 1_u16, 0_u16, 315_532_800),
            (1980, 12, 31, 0, 347_068_800),
            (1981, 3, 1, 0, 352_252_800),
            (2024, 2, 29, 23, 1_709_247_600),
            (2026, 11, 23, 0, 1_795_392_000),
        ] {
            let date = (year - 1980) << 9 | month << 5 | day;
            assert_eq!(seconds(date, hours << 11), want, "{year}-{month}-{day}");
        }
        assert_eq!(seconds(0, 0), 315_532_800, "no date");
    }

    #[test]
    fn large_sizes_stand_in_the_extra_data_in_their_order() {
        let extra = [&[9, 0, 2, 0, 7, 7][..], &[1, 0, 16, 0], &[5, 0, 0, 0, 1, 0, 0, 0], &[6; 8]];
        let extra = extra.concat();
        let mut large = Zip64(zip64(&extra));
        assert_eq!(large.or_next(IN_EXTRA), Ok(0x1_0000_0005));
        assert_eq!(large.or_next(3), Ok(3));
        assert_eq!(large.or_next(IN_EXTRA), Ok(0x0606_0606_0606_0606));
        assert!(large.or_next(IN_EXTRA).is_err());
        assert!(zip64(&[1, 0, 200, 0, 1]).is_empty(), "longer than the extra data");
    }
}
