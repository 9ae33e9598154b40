//! Inode flags, with the letters and names of lsattr.

use alloc::string::String;
use alloc::vec::Vec;

/// Defines the flags that lsattr shows, in its order, and the others.
macro_rules! inode_flags {
    (
        shown { $($(#[$($doc:tt)*])* $flag:ident = $bit:literal, $letter:literal, $text:literal;)* }
        hidden { $($(#[$($hidden_doc:tt)*])* $hidden:ident = $hidden_bit:literal;)* }
    ) => {
        bitflags::bitflags! {
            /// `i_flags`.
            #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
            pub struct InodeFlags: u32 {
                $($(#[$($doc)*])* const $flag = $bit;)*
                $($(#[$($hidden_doc)*])* const $hidden = $hidden_bit;)*
                // Unknown bits are preserved.
                const _ = !0;
            }
        }

        impl InodeFlags {
            /// The flags that lsattr shows, in its order, with its letters and long names.
            pub const SHOWN: &'static [(Self, char, &'static str)] =
                &[$((Self::$flag, $letter, $text),)*];
        }
    };
}

inode_flags! {
    shown {
        /// Overwrite on deletion; not implemented.
        SECURE_DELETION = 0x1, 's', "Secure_Deletion";
        /// Keep for undeletion; not implemented.
        UNDELETE = 0x2, 'u', "Undelete";
        /// Writes are synchronous.
        SYNC = 0x8, 'S', "Synchronous_Updates";
        /// Changes of the directory are synchronous.
        DIRSYNC = 0x1_0000, 'D', "Synchronous_Directory_Updates";
        /// Cannot be changed.
        IMMUTABLE = 0x10, 'i', "Immutable";
        /// Can only grow.
        APPEND = 0x20, 'a', "Append_Only";
        /// Excluded from dump.
        NODUMP = 0x40, 'd', "No_Dump";
        /// Access times are not updated.
        NOATIME = 0x80, 'A', "No_Atime";
        /// Compressed; not implemented.
        COMPRESSED = 0x4, 'c', "Compression_Requested";
        /// Encrypted.
        ENCRYPT = 0x800, 'E', "Encrypted";
        /// Data is journalled.
        JOURNAL_DATA = 0x4000, 'j', "Journaled_Data";
        /// Directory with a hashed index.
        INDEX = 0x1000, 'I', "Indexed_directory";
        /// No tail merging; not used by ext4.
        NOTAIL = 0x8000, 't', "No_Tailmerging";
        /// Its subdirectories are unrelated and spread over the volume.
        TOPDIR = 0x2_0000, 'T', "Top_of_Directory_Hierarchies";
        /// Mapped by extents.
        EXTENTS = 0x8_0000, 'e', "Extents";
        /// No copy on write; not used by ext4.
        NO_COW = 0x80_0000, 'C', "No_COW";
        /// Direct access to persistent memory.
        DAX = 0x200_0000, 'x', "DAX";
        /// Case-insensitive directory.
        CASEFOLD = 0x4000_0000, 'F', "Casefold";
        /// Data is stored in the inode.
        INLINE_DATA = 0x1000_0000, 'N', "Inline_Data";
        /// New files inherit the directory's project.
        PROJECT_INHERIT = 0x2000_0000, 'P', "Project_Hierarchy";
        /// Contents are protected by a hash tree (fs-verity).
        VERITY = 0x10_0000, 'V', "Verity";
        /// Must not be compressed; not implemented.
        NO_COMPRESSION = 0x400, 'm', "Dont_Compress";
    }
    hidden {
        /// Compressed and dirty; never used.
        DIRTY = 0x100;
        /// Has compressed clusters; never used.
        COMPRESSED_BLOCKS = 0x200;
        /// AFS directory.
        IMAGIC = 0x2000;
        /// `i_blocks` counts blocks, not sectors.
        HUGE_FILE = 0x4_0000;
        /// Holds the value of an extended attribute.
        EA_INODE = 0x20_0000;
        /// Blocks past the end of the file; no longer used.
        EOF_BLOCKS = 0x40_0000;
        /// A snapshot; never merged.
        SNAPSHOT = 0x100_0000;
        /// A snapshot under deletion; never merged.
        SNAPSHOT_DELETED = 0x400_0000;
        /// A snapshot that was shrunk; never merged.
        SNAPSHOT_SHRUNK = 0x800_0000;
        /// Reserved for the ext4 library.
        RESERVED = 0x8000_0000;
    }
}

impl InodeFlags {
    /// The flags as lsattr prints them: a letter or a dash for each.
    pub fn letters(self) -> String {
        Self::SHOWN
            .iter()
            .map(|(flag, letter, _)| if self.contains(*flag) { *letter } else { '-' })
            .collect()
    }

    /// The long names as `lsattr -l` prints them.
    pub fn names(self) -> Vec<&'static str> {
        Self::SHOWN
            .iter()
            .filter(|(flag, _, _)| self.contains(*flag))
            .map(|(_, _, name)| *name)
            .collect()
    }
}
