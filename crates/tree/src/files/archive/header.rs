//! The header of an entry of a tar archive: one block, in the formats of 1979, POSIX and GNU.

/// The unit of an archive, bytes.
pub(super) const BLOCK_BYTES: usize = 512;
/// One block.
pub(super) type TarBlock = [u8; BLOCK_BYTES];

const NAME: TarField = TarField(0, 100);
const MODE: TarField = TarField(100, 8);
const UID: TarField = TarField(108, 8);
const GID: TarField = TarField(116, 8);
const SIZE: TarField = TarField(124, 12);
const MODIFIED: TarField = TarField(136, 12);
const CHECKSUM: TarField = TarField(148, 8);
const KIND: TarField = TarField(156, 1);
const LINK: TarField = TarField(157, 100);
const MAGIC: TarField = TarField(257, 8);
const PREFIX: TarField = TarField(345, 155);

/// The magic with which a name can go on in the field `PREFIX`.
const MAGIC_POSIX: &[u8] = b"ustar\0";
const MAGIC_GNU: &[u8] = b"ustar  \0";
/// The largest number that fits into a field of 12 bytes in octal digits.
const OCTAL_MAX: u64 = (1 << 33) - 1;

/// A field of a header: its start and its length.
#[derive(Clone, Copy)]
struct TarField(usize, usize);

impl TarField {
    fn of(self, block: &TarBlock) -> &[u8] {
        block.get(self.0..self.0 + self.1).unwrap_or_default()
    }

    fn text(self, block: &TarBlock) -> &[u8] {
        until_nul(self.of(block))
    }

    fn put(self, block: &mut TarBlock, bytes: &[u8]) {
        let field = block.iter_mut().skip(self.0).take(self.1);
        field.zip(bytes).for_each(|(slot, byte)| *slot = *byte);
    }

    /// Writes octal digits that end with NUL, or a large number in binary.
    fn put_number(self, block: &mut TarBlock, number: u64) {
        if number > OCTAL_MAX {
            let mut bytes = vec![0; self.1.saturating_sub(8)];
            bytes.extend_from_slice(&number.to_be_bytes());
            if let Some(first) = bytes.first_mut() {
                *first |= 0x80;
            }
            self.put(block, &bytes);
        } else {
            self.put(block, format!("{number:0width$o}\0", width = self.1 - 1).as_bytes());
        }
    }

    /// The number in the field; `None` if it is malformed or negative.
    fn number(self, block: &TarBlock) -> Option<u64> {
        let bytes = self.of(block);
        match bytes.split_first()? {
            (0x80, rest) => {
                let (high, low) = rest.split_at_checked(rest.len().checked_sub(8)?)?;
                let low = u64::from_be_bytes(low.try_into().ok()?);
                high.iter().all(|byte| *byte == 0).then_some(low)
            }
            (0x81.., _) => None,
            _ => octal(bytes),
        }
    }
}

/// The number in octal digits between blanks and NULs; an empty field is 0.
fn octal(bytes: &[u8]) -> Option<u64> {
    let is_filler = |byte: &u8| matches!(*byte, b' ' | 0);
    let start = bytes.iter().position(|byte| !is_filler(byte)).unwrap_or(bytes.len());
    let digits = bytes.get(start..)?;
    let end = digits.iter().position(is_filler).unwrap_or(digits.len());
    let (digits, rest) = digits.split_at_checked(end)?;
    if !rest.iter().all(is_filler) {
        return None;
    }
    digits.iter().try_fold(0_u64, |number, digit| match *digit {
        b'0'..=b'7' => number.checked_mul(8)?.checked_add(u64::from(*digit - b'0')),
        _ => None,
    })
}

pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// The fields of a header that count for unpacking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TarHeader {
    pub(super) kind: u8,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Seconds since the epoch.
    pub(super) modified: u64,
}

impl TarHeader {
    /// Decodes a block that is not all zeros.
    pub(super) fn decode(block: &TarBlock) -> Result<Self, &'static str> {
        let sum = CHECKSUM.number(block);
        if sum != Some(checksum(block, u64::from)) && sum != Some(checksum(block, signed)) {
            return Err("this is not a tar archive, or a header is damaged");
        }
        let mut path = NAME.text(block).to_vec();
        let prefix = PREFIX.text(block);
        if MAGIC.of(block).starts_with(MAGIC_POSIX) && !prefix.is_empty() {
            path = [prefix, b"/", &path].concat();
        }
        let mode = MODE.number(block).ok_or("its mode is malformed")?;
        Ok(Self {
            kind: KIND.of(block).first().copied().unwrap_or_default(),
            path,
            link: LINK.text(block).to_vec(),
            mode: u32::try_from(mode & 0o7777).unwrap_or_default(),
            size: SIZE.number(block).ok_or("its size is malformed")?,
            modified: MODIFIED.number(block).unwrap_or(0),
        })
    }

    /// Encodes the header. A path or link that is too long is cut; an entry before it has all of it.
    pub(super) fn encode(&self) -> TarBlock {
        let mut block = [0; BLOCK_BYTES];
        NAME.put(&mut block, &self.path);
        MODE.put_number(&mut block, u64::from(self.mode));
        UID.put_number(&mut block, 0);
        GID.put_number(&mut block, 0);
        SIZE.put_number(&mut block, self.size);
        MODIFIED.put_number(&mut block, self.modified);
        KIND.put(&mut block, &[self.kind]);
        LINK.put(&mut block, &self.link);
        MAGIC.put(&mut block, MAGIC_GNU);
        let sum = checksum(&block, u64::from);
        CHECKSUM.put(&mut block, format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

/// Whether a path or link of this length fits into its field.
pub(super) fn fits(text: &[u8]) -> bool {
    text.len() <= NAME.1
}

/// The sum of all bytes, with blanks for the checksum. Some old programs added signed bytes.
fn checksum(block: &TarBlock, value: impl Fn(u8) -> u64) -> u64 {
    let is_checksum = |at: usize| (CHECKSUM.0..CHECKSUM.0 + CHECKSUM.1).contains(&at);
    let bytes = block.iter().enumerate();
    bytes
        .map(|(at, byte)| if is_checksum(at) { u64::from(b' ') } else { value(*byte) })
        .fold(0, u64::wrapping_add)
}

/// The byte as a signed number, which wraps.
fn signed(byte: u8) -> u64 {
    let value = u64::from(byte);
    if byte < 0x80 { value } else { value.wrapping_sub(256) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_are_read_in_every_form_and_nothing_else() {
        for (bytes, number) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"644\0\0\0\0\0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"        ", Some(0)),
            (b"77777777", Some(0o7777_7777)),
            (b"+000644\0", None),
            (b"-1\0\0\0\0\0\0", None),
            (b"0008\0\0\0\0", None),
            (b"64 4\0\0\0\0", None),
            (b"6\x004\0\0\0\0\0", None),
        ] {
            assert_eq!(octal(bytes), number, "{bytes:?}");
        }
        let mut block = [0; BLOCK_BYTES];
        for number in [0, 7, OCTAL_MAX, OCTAL_MAX + 1, u64::MAX] {
            SIZE.put(&mut block, &[0; 12]);
            SIZE.put_number(&mut block, number);
            assert_eq!(SIZE.number(&block), Some(number));
        }
        SIZE.put(&mut block, &[0xff; 12]);
        assert_eq!(SIZE.number(&block), None, "a negative number");
        SIZE.put(&mut block, b"\x80\0\0\x01\0\0\0\0\0\0\0\0");
        assert_eq!(SIZE.number(&block), None, "a number of more than 64 bits");
    }

    #[test]
    fn a_damaged_block_is_no_header() {
        let path = b"a".to_vec();
        let header =
            TarHeader { kind: b'0', path, link: vec![], mode: 0o644, size: 5, modified: 7 };
        let block = header.encode();
        assert_eq!(TarHeader::decode(&block), Ok(header));
        for at in 0..BLOCK_BYTES {
            let mut damaged = block;
            damaged[at] ^= 1;
            // NUL and blank are the same in the checksum's own padding.
            if !(CHECKSUM.0 + 6..CHECKSUM.0 + 8).contains(&at) {
                assert!(TarHeader::decode(&damaged).is_err(), "{at}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_block_panics(bytes in proptest::collection::vec(any::<u8>(), BLOCK_BYTES), fix: bool) {
            let mut block: TarBlock = bytes.try_into().unwrap();
            if fix {
                let sum = checksum(&block, u64::from);
                CHECKSUM.put(&mut block, format!("{sum:06o}\0 ").as_bytes());
            }
            let _ = TarHeader::decode(&block);
        }
    }
}
