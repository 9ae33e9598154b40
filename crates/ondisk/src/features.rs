//! Feature flags of the superblock: compatible, incompatible (unreadable if unknown), read-only
//! compatible.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Defines one word of feature flags: bitflags with the names that mke2fs, dumpe2fs and tune2fs
/// use.
macro_rules! features {
    ($(#[$doc:meta])* $name:ident, $word:literal { $($(#[$($flag_doc:tt)*])* $flag:ident = $bit:literal, $text:literal;)* }) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
            pub struct $name: u32 {
                $($(#[$($flag_doc)*])* const $flag = $bit;)*
                // Unknown bits are preserved.
                const _ = !0;
            }
        }

        impl $name {
            /// The known flags, lowest bit first, with e2fsprogs' names.
            pub const KNOWN: &'static [(Self, &'static str)] = &[$((Self::$flag, $text),)*];

            /// Bits without a known name.
            pub fn unknown(self) -> Self {
                Self::KNOWN.iter().fold(self, |left, (flag, _)| left.difference(*flag))
            }

            /// The names of the flags that are set, lowest bit first; an unknown bit N is
            /// `FEATURE_xN`, as e2fsprogs writes it.
            pub fn names(self) -> Vec<String> {
                (0..32)
                    .map(|bit| Self::from_bits_retain(1 << bit))
                    .filter(|flag| self.contains(*flag))
                    .map(|flag| match Self::KNOWN.iter().find(|(known, _)| *known == flag) {
                        Some((_, text)) => String::from(*text),
                        None => alloc::format!("FEATURE_{}{}", $word, flag.bits().trailing_zeros()),
                    })
                    .collect()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.names().join(","))
            }
        }
    };
}

pub(crate) use features;

features! {
    /// `s_feature_compat`: a volume with an unknown one can be read and written.
    CompatFeatures, "C" {
        /// Directory preallocation, never used on Linux.
        DIR_PREALLOC = 0x1, "dir_prealloc";
        /// Used by AFS.
        IMAGIC_INODES = 0x2, "imagic_inodes";
        /// Has a journal.
        HAS_JOURNAL = 0x4, "has_journal";
        /// Extended attributes.
        EXT_ATTR = 0x8, "ext_attr";
        /// Descriptor blocks are reserved for growth.
        RESIZE_INODE = 0x10, "resize_inode";
        /// Hashed directories.
        DIR_INDEX = 0x20, "dir_index";
        /// Lazily initialized block groups, never merged.
        LAZY_BG = 0x40, "lazy_bg";
        /// Snapshot exclusion, never merged.
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap";
        /// At most two superblock backups, in the groups that the superblock names.
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        /// The journal may have a fast-commit area.
        FAST_COMMIT = 0x400, "fast_commit";
        /// Inode numbers and UUID are fixed, for encryption keys.
        STABLE_INODES = 0x800, "stable_inodes";
        /// Orphans are stored in the orphan file.
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
}

features! {
    /// `s_feature_incompat`: a volume with an unknown one cannot be read.
    IncompatFeatures, "I" {
        /// Compression, never merged.
        COMPRESSION = 0x1, "compression";
        /// Directory entries have the file type.
        FILETYPE = 0x2, "filetype";
        /// The journal must be replayed.
        RECOVER = 0x4, "needs_recovery";
        /// The volume is a journal for another volume.
        JOURNAL_DEV = 0x8, "journal_dev";
        /// Descriptors are stored in their meta groups instead of at the start.
        META_BG = 0x10, "meta_bg";
        /// Files may have extent trees.
        EXTENTS = 0x40, "extent";
        /// Block numbers of 64 bits, descriptors of 64 bytes.
        BIT64 = 0x80, "64bit";
        /// Multiple-mount protection.
        MMP = 0x100, "mmp";
        /// Bitmaps and inode tables of several groups are stored together.
        FLEX_BG = 0x200, "flex_bg";
        /// Values of large extended attributes have their own inodes.
        EA_INODE = 0x400, "ea_inode";
        /// Data in directory entries, never used.
        DIRDATA = 0x1000, "dirdata";
        /// The checksum seed is stored, so that the UUID can change.
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        /// Directories beyond 2 GiB or with three levels of htree.
        LARGEDIR = 0x4000, "large_dir";
        /// Small files and directories inside the inode.
        INLINE_DATA = 0x8000, "inline_data";
        /// Encrypted files.
        ENCRYPT = 0x10000, "encrypt";
        /// Case-insensitive directories.
        CASEFOLD = 0x20000, "casefold";
    }
}

features! {
    /// `s_feature_ro_compat`: a volume with an unknown one can be read but not written.
    RoCompatFeatures, "R" {
        /// Superblock backups only in some groups.
        SPARSE_SUPER = 0x1, "sparse_super";
        /// Files of 2 GiB and more.
        LARGE_FILE = 0x2, "large_file";
        /// B-tree directories, never used.
        BTREE_DIR = 0x4, "btree_dir";
        /// Block counts of inodes in units of blocks.
        HUGE_FILE = 0x8, "huge_file";
        /// Descriptors have crc16 checksums; bitmaps and inode tables may be uninitialized.
        GDT_CSUM = 0x10, "uninit_bg";
        /// A directory may have more than 65,000 subdirectories.
        DIR_NLINK = 0x20, "dir_nlink";
        /// Large inodes with room reserved for more fields.
        EXTRA_ISIZE = 0x40, "extra_isize";
        /// Snapshots, never merged.
        HAS_SNAPSHOT = 0x80, "snapshot";
        /// Quota files are file system metadata.
        QUOTA = 0x100, "quota";
        /// Allocation in clusters of several blocks.
        BIGALLOC = 0x200, "bigalloc";
        /// crc32c checksums on all metadata.
        METADATA_CSUM = 0x400, "metadata_csum";
        /// Replicas, never used.
        REPLICA = 0x800, "replica";
        /// The volume must not be written.
        READONLY = 0x1000, "read-only";
        /// Project quota.
        PROJECT = 0x2000, "project";
        /// Blocks are shared between files (Android); only reading is possible.
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        /// Verity files.
        VERITY = 0x8000, "verity";
        /// The orphan file may hold orphans.
        ORPHAN_PRESENT = 0x10000, "orphan_present";
    }
}

impl IncompatFeatures {
    /// The supported features. Others are rejected by name before anything else is read.
    pub const READABLE: Self = Self::FILETYPE
        .union(Self::RECOVER)
        .union(Self::META_BG)
        .union(Self::EXTENTS)
        .union(Self::BIT64)
        .union(Self::MMP)
        .union(Self::FLEX_BG)
        .union(Self::EA_INODE)
        .union(Self::CSUM_SEED)
        .union(Self::LARGEDIR)
        .union(Self::INLINE_DATA)
        .union(Self::ENCRYPT)
        .union(Self::CASEFOLD);
}

/// The three words together.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Features {
    /// Compatible ones.
    pub compat: CompatFeatures,
    /// Incompatible ones.
    pub incompat: IncompatFeatures,
    /// Read-only compatible ones.
    pub ro_compat: RoCompatFeatures,
}

impl Features {
    /// All names in the order in which dumpe2fs lists them: compat, incompat, ro_compat, lowest bit
    /// first.
    pub fn names(&self) -> Vec<String> {
        let mut names = self.compat.names();
        names.extend(self.incompat.names());
        names.extend(self.ro_compat.names());
        names
    }

    /// The single feature with that name: e2fsprogs' names, `extents` for `extent`, and
    /// `uninit_groups`, the first name of `uninit_bg`. `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        let name = match name {
            "extents" => "extent",
            "uninit_groups" | "gdt_csum" => "uninit_bg",
            other => other,
        };
        if let Some((compat, _)) = CompatFeatures::KNOWN.iter().find(|(_, text)| *text == name) {
            return Some(Self { compat: *compat, ..Self::default() });
        }
        if let Some((incompat, _)) = IncompatFeatures::KNOWN.iter().find(|(_, text)| *text == name)
        {
            return Some(Self { incompat: *incompat, ..Self::default() });
        }
        RoCompatFeatures::KNOWN
            .iter()
            .find(|(_, text)| *text == name)
            .map(|(ro_compat, _)| Self { ro_compat: *ro_compat, ..Self::default() })
    }

    /// Whether every feature of `other` is set.
    pub fn contains(&self, other: Self) -> bool {
        self.compat.contains(other.compat)
            && self.incompat.contains(other.incompat)
            && self.ro_compat.contains(other.ro_compat)
    }

    /// The features in either.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            compat: self.compat | other.compat,
            incompat: self.incompat | other.incompat,
            ro_compat: self.ro_compat | other.ro_compat,
        }
    }

    /// The features that are not in `other`.
    #[must_use]
    pub fn difference(self, other: Self) -> Self {
        Self {
            compat: self.compat.difference(other.compat),
            incompat: self.incompat.difference(other.incompat),
            ro_compat: self.ro_compat.difference(other.ro_compat),
        }
    }

    /// The features in both.
    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        self.difference(self.difference(other))
    }

    /// The type of metadata checksums.
    pub fn checksum(&self) -> MetadataChecksum {
        if self.ro_compat.contains(RoCompatFeatures::METADATA_CSUM) {
            MetadataChecksum::Crc32c
        } else if self.ro_compat.contains(RoCompatFeatures::GDT_CSUM) {
            MetadataChecksum::DescCrc16
        } else {
            MetadataChecksum::None
        }
    }
}

impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().join(" "))
    }
}

/// The type of metadata checksums.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum MetadataChecksum {
    /// None.
    None,
    /// crc16 of group descriptors only (uninit_bg).
    DescCrc16,
    /// crc32c of all metadata (metadata_csum).
    Crc32c,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_bits_and_unknown_bits_are_numbered() {
        let incompat = IncompatFeatures::EXTENTS | IncompatFeatures::from_bits_retain(1 << 31);
        assert_eq!(incompat.names(), ["extent", "FEATURE_I31"]);
        assert_eq!(incompat.unknown().bits(), 1 << 31);
    }

    #[test]
    fn every_name_is_found_again() {
        let all = Features {
            compat: CompatFeatures::all().difference(CompatFeatures::all().unknown()),
            incompat: IncompatFeatures::all().difference(IncompatFeatures::all().unknown()),
            ro_compat: RoCompatFeatures::all().difference(RoCompatFeatures::all().unknown()),
        };
        let found = all.names().iter().fold(Features::default(), |sum, name| {
            sum.union(Features::named(name).expect("a listed name"))
        });
        assert_eq!(found, all);
        assert_eq!(Features::named("uninit_groups"), Features::named("uninit_bg"));
        assert_eq!(Features::named("nonsense"), None);
    }
}
