//! The header block of tar: v7, ustar, GNU, old GNU and star.

use std::borrow::Cow;

use super::super::error::Flaw;
use super::super::node::FileTime;
use super::input::BLOCK;

/// A field: where it begins and ends in the block.
type Span = std::ops::Range<usize>;

const NAME: Span = 0..100;
const MODE: Span = 100..108;
const UID: Span = 108..116;
const GID: Span = 116..124;
const SIZE: Span = 124..136;
const MTIME: Span = 136..148;
const CHECKSUM: Span = 148..156;
const TYPE_FLAG: usize = 156;
const LINK_NAME: Span = 157..257;
/// "ustar" and a NUL (POSIX) or two blanks and a NUL over the version too (GNU).
const MAGIC: Span = 257..265;
const DEV_MAJOR: Span = 329..337;
const DEV_MINOR: Span = 337..345;
const PREFIX: Span = 345..500;
/// star stores times at the end of ustar's prefix, and marks this at the block's end.
const STAR_PREFIX: Span = 345..476;
const STAR_MAGIC: Span = 508..512;
/// Old GNU sparse files: four segments, whether more blocks of them follow, and the size with
/// holes.
const SPARSE: Span = 386..482;
const SPARSE_EXTENDED: usize = 482;
const SPARSE_REAL_SIZE: Span = 483..495;
/// A further block: 21 segments and whether another follows.
const MORE_SPARSE: Span = 0..504;
const MORE_EXTENDED: usize = 504;
const SPARSE_ENTRY: usize = 24;

/// A block that has passed [`Header::check`].
pub(super) struct Header(pub(super) [u8; BLOCK]);

impl Header {
    /// Whether the block is the archive's end.
    pub(super) fn is_zero(&self) -> bool {
        self.0.iter().all(|&byte| byte == 0)
    }

    /// Compares the checksum. Historic tars summed signed bytes.
    pub(super) fn check(&self) -> Result<(), Flaw> {
        let found = octal("checksum", &self.0[CHECKSUM])?;
        // The sum of 256 bytes has 16 bits at most: narrow sums are many at once.
        let sum = |bytes: &[u8]| bytes.iter().map(|&byte| u16::from(byte)).sum::<u16>();
        let own = u64::from(sum(&self.0[CHECKSUM]));
        let all: u64 = self.0.chunks(256).map(|half| u64::from(sum(half))).sum();
        let blanks = 8 * u64::from(b' ');
        let computed = all - own + blanks;
        if found == computed {
            return Ok(());
        }
        let high = |bytes: &[u8]| bytes.iter().filter(|&&byte| byte >= 0x80).count() as u64 * 256;
        let signed = computed.checked_sub(high(&self.0) - high(&self.0[CHECKSUM]));
        if signed != Some(found) {
            return Err(Flaw::Checksum { found, computed });
        }
        Ok(())
    }

    pub(super) const fn type_flag(&self) -> u8 {
        self.0[TYPE_FLAG]
    }

    /// The name, with the prefix where the format has one.
    pub(super) fn name(&self) -> Cow<'_, [u8]> {
        let name = text(&self.0[NAME]);
        let prefix = match &self.0[MAGIC] {
            b"ustar  \0" => &[],
            magic if magic.starts_with(b"ustar") => match &self.0[STAR_MAGIC] {
                b"tar\0" => text(&self.0[STAR_PREFIX]),
                _ => text(&self.0[PREFIX]),
            },
            _ => &[],
        };
        if prefix.is_empty() {
            return Cow::Borrowed(name);
        }
        Cow::Owned([prefix, b"/", name].concat())
    }

    pub(super) fn link_name(&self) -> &[u8] {
        text(&self.0[LINK_NAME])
    }

    pub(super) fn mode(&self) -> Result<u16, Flaw> {
        // Some archivers store the type bits too.
        Ok((unsigned("mode", &self.0[MODE])? & 0o7777) as u16)
    }

    pub(super) fn uid(&self) -> Result<u64, Flaw> {
        unsigned("uid", &self.0[UID])
    }

    pub(super) fn gid(&self) -> Result<u64, Flaw> {
        unsigned("gid", &self.0[GID])
    }

    pub(super) fn size(&self) -> Result<u64, Flaw> {
        unsigned("size", &self.0[SIZE])
    }

    pub(super) fn mtime(&self) -> Result<FileTime, Flaw> {
        Ok(FileTime { seconds: signed("mtime", &self.0[MTIME])?, nanoseconds: 0 })
    }

    /// Major and minor number.
    pub(super) fn device(&self) -> Result<(u64, u64), Flaw> {
        Ok((unsigned("devmajor", &self.0[DEV_MAJOR])?, unsigned("devminor", &self.0[DEV_MINOR])?))
    }

    /// Of an old GNU sparse file: its size with holes.
    pub(super) fn real_size(&self) -> Result<u64, Flaw> {
        unsigned("realsize", &self.0[SPARSE_REAL_SIZE])
    }

    /// For an old GNU sparse file: adds the header's segments, and returns whether a block with
    /// more follows.
    pub(super) fn sparse(&self, segments: &mut Vec<(u64, u64)>) -> Result<bool, Flaw> {
        sparse_entries(&self.0[SPARSE], segments)?;
        Ok(self.0[SPARSE_EXTENDED] != 0)
    }
}

/// As [`Header::sparse`], for a block that follows.
pub(super) fn more_sparse(
    block: &[u8; BLOCK],
    segments: &mut Vec<(u64, u64)>,
) -> Result<bool, Flaw> {
    sparse_entries(&block[MORE_SPARSE], segments)?;
    Ok(block[MORE_EXTENDED] != 0)
}

fn sparse_entries(bytes: &[u8], segments: &mut Vec<(u64, u64)>) -> Result<(), Flaw> {
    for entry in bytes.chunks_exact(SPARSE_ENTRY) {
        let (offset, length) = entry.split_at(SPARSE_ENTRY / 2);
        if offset[0] == 0 && length[0] == 0 {
            break;
        }
        segments.push((unsigned("sparse offset", offset)?, unsigned("sparse numbytes", length)?));
    }
    Ok(())
}

/// Up to the first NUL.
fn text(field: &[u8]) -> &[u8] {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    &field[..end]
}

fn invalid(name: &'static str, field: &[u8]) -> Flaw {
    Flaw::Field { field: name, text: field.into() }
}

fn unsigned(name: &'static str, field: &[u8]) -> Result<u64, Flaw> {
    match field.first() {
        Some(0x80..) => u64::try_from(base_256(name, field)?).map_err(|_| invalid(name, field)),
        _ => octal(name, field),
    }
}

fn signed(name: &'static str, field: &[u8]) -> Result<i64, Flaw> {
    match field.first() {
        Some(0x80..) => base_256(name, field),
        _ => i64::try_from(octal(name, field)?).map_err(|_| invalid(name, field)),
    }
}

/// Octal digits, with blanks before and a blank or NUL after them; nothing at all is 0.
fn octal(name: &'static str, field: &[u8]) -> Result<u64, Flaw> {
    let start = field.iter().position(|&byte| byte != b' ').unwrap_or(field.len());
    let mut number = 0_u64;
    for &byte in &field[start..] {
        match byte {
            b'0'..=b'7' => {
                let digit = u64::from(byte - b'0');
                number = number
                    .checked_mul(8)
                    .and_then(|number| number.checked_add(digit))
                    .ok_or_else(|| invalid(name, field))?;
            }
            b' ' | 0 => break,
            _ => return Err(invalid(name, field)),
        }
    }
    Ok(number)
}

/// GNU's form for large and negative numbers: two's complement, big-endian, the topmost bit only a
/// mark.
fn base_256(name: &'static str, field: &[u8]) -> Result<i64, Flaw> {
    let is_negative = field[0] & 0x40 != 0;
    let mut number: i128 = if is_negative { -1 } else { 0 };
    for (index, &byte) in field.iter().enumerate() {
        let byte = match index {
            0 if is_negative => byte | 0x80,
            0 => byte & 0x7f,
            _ => byte,
        };
        number = (number << 8) | i128::from(byte);
    }
    i64::try_from(number).map_err(|_| invalid(name, field))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_base_256() {
        assert_eq!(unsigned("size", b"  644 \0 ").unwrap(), 0o644);
        assert_eq!(unsigned("size", b"77777777777\0").unwrap(), 0o77_777_777_777);
        assert_eq!(unsigned("size", &[0; 12]).unwrap(), 0);
        assert_eq!(unsigned("size", b"\x80\0\0\0\0\0\0\x02\0\0\0\0").unwrap(), 1 << 33);
        assert_eq!(signed("mtime", &[0xff; 12]).unwrap(), -1);
        assert_eq!(signed("mtime", b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0").unwrap(), -1 << 32);
        assert!(unsigned("size", &[0xff; 12]).is_err());
        assert!(unsigned("size", b"\x81\0\0\0\0\0\0\0\0\0\0\0").is_err());
        assert!(unsigned("size", b"12a45678").is_err());
        assert!(unsigned("size", b"7777777777777777777777777").is_err());
    }

    #[test]
    fn a_sum_of_signed_bytes_is_a_checksum_too() {
        let mut header = Header([0; BLOCK]);
        header.0[..2].copy_from_slice(b"\xe9a");
        header.0[CHECKSUM].copy_from_slice(format!("{:06o}\0 ", 0xe9 + 0x61 + 256).as_bytes());
        header.check().unwrap();
        header.0[CHECKSUM].copy_from_slice(format!("{:06o}\0 ", 0xe9 + 0x61).as_bytes());
        header.check().unwrap();
        header.0[CHECKSUM].copy_from_slice(format!("{:06o}\0 ", 0xe9 + 0x60).as_bytes());
        assert!(matches!(header.check(), Err(Flaw::Checksum { found: 0o511, computed: 0o1112 })));
    }
}
