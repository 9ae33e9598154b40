//! Numeric types of the format, each for a unit.

use core::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number! {
    /// A physical block number: counted in file system blocks from the start of the device. 48 bits
    /// are stored.
    BlockNo(u64)
}
number! {
    /// A logical block number: counted from the start of a file. ext4 stores 32 bits, memory keeps
    /// 64.
    FileBlock(u64)
}
number! {
    /// A cluster of blocks: the unit of allocation (one block, more with bigalloc).
    ClusterNo(u64)
}
number! {
    /// A block group.
    GroupNo(u32)
}
number! {
    /// An inode number, counted from 1; 0 means none.
    InodeNo(u32)
}
number! {
    /// A journal transaction's sequence number. Compare with [`Tid::is_before`]: it wraps around.
    Tid(u32)
}

/// Number of physical blocks that the format can address: 48 bits.
pub const MAX_BLOCKS: u64 = 1 << 48;

/// Logical blocks of one file: block 2^32-1 is not addressable, so a file ends there (`EFBIG` past
/// it).
pub const MAX_FILE_BLOCKS: u64 = (1 << 32) - 1;

impl BlockNo {
    /// The block `count` blocks after this one, or `None` past 2^64.
    pub fn checked_add(self, count: u64) -> Option<Self> {
        self.0.checked_add(count).map(Self)
    }
}

impl FileBlock {
    /// The stored 32-bit number, or `None` past the format's end ([`MAX_FILE_BLOCKS`]).
    pub fn stored(self) -> Option<u32> {
        if self.0 < MAX_FILE_BLOCKS { u32::try_from(self.0).ok() } else { None }
    }
}

impl InodeNo {
    /// The root directory's inode.
    pub const ROOT: Self = Self(2);
    /// The inode that lists bad blocks.
    pub const BAD_BLOCKS: Self = Self(1);
    /// User quota file.
    pub const USER_QUOTA: Self = Self(3);
    /// Group quota file.
    pub const GROUP_QUOTA: Self = Self(4);
    /// Holds the descriptor blocks reserved for growing the volume.
    pub const RESIZE: Self = Self(7);
    /// The internal journal, unless the superblock names another inode.
    pub const JOURNAL: Self = Self(8);
    /// First inode of ordinary files on revision 0 volumes, and the default later.
    pub const FIRST_ORDINARY: Self = Self(11);
}

impl Tid {
    /// Whether this transaction is older than `other`, in the arithmetic of wrapping sequence
    /// numbers.
    pub fn is_before(self, other: Self) -> bool {
        self.0 != other.0 && other.0.wrapping_sub(self.0) < 1 << 31
    }

    /// The transaction after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// A 16-byte identifier: of a volume, a journal, a hash seed.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Uuid(pub [u8; 16]);

impl Uuid {
    /// All bytes zero: no identifier.
    pub const NIL: Self = Self([0; 16]);

    /// Whether all bytes are zero.
    pub fn is_nil(self) -> bool {
        self == Self::NIL
    }

    /// Reads `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`, case ignored; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0_u8; 16];
        let mut digits = 0_usize;
        for (at, &byte) in text.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if byte != b'-' {
                    return None;
                }
                continue;
            }
            let digit = u8::try_from(char::from(byte).to_digit(16)?).ok()?;
            bytes[digits / 2] |= if digits.is_multiple_of(2) { digit << 4 } else { digit };
            digits += 1;
        }
        Some(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn tids_compare_across_the_wrap() {
        assert!(Tid(u32::MAX).is_before(Tid(0)));
        assert!(!Tid(0).is_before(Tid(u32::MAX)));
        assert!(!Tid(7).is_before(Tid(7)));
    }

    #[test]
    fn a_uuid_reads_what_it_prints() {
        let text = "01234567-89ab-cdef-0123-456789abcdef";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        assert_eq!(Uuid::parse("01234567-89ab-cdef-0123-456789abcde"), None);
        assert_eq!(Uuid::parse("0123456789ab-cdef-0123-456789abcdefff"), None);
    }

    #[test]
    fn the_last_stored_file_block_is_two_below_the_type() {
        assert_eq!(FileBlock(0xffff_fffe).stored(), Some(0xffff_fffe));
        assert_eq!(FileBlock(0xffff_ffff).stored(), None);
    }
}
