//! The record of an inode as stored.

use extant_ondisk::inode::{
    FILE_TYPE_MASK, FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, InodeFlags, RawInode,
    RawInodeExtra,
};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Geometry, InodeNo};
use zerocopy::{FromBytes, FromZeros};

/// An inode's record: its bytes, and the fields in them.
#[derive(Clone, Debug)]
pub struct RawRecord {
    /// Its number.
    pub number: InodeNo,
    /// The whole record.
    pub bytes: Vec<u8>,
}

impl RawRecord {
    /// A record of the bytes of an inode table.
    pub fn new(number: InodeNo, bytes: Vec<u8>) -> Self {
        Self { number, bytes }
    }

    /// The first 128 bytes.
    pub fn base(&self) -> RawInode {
        match RawInode::read_from_prefix(&self.bytes) {
            Ok((base, _)) => base,
            Err(_) => RawInode::new_zeroed(),
        }
    }

    /// `i_extra_isize`, as far as the record reaches; `None` in records of 128 bytes.
    pub fn extra_isize(&self) -> Option<usize> {
        let at = usize::from(GOOD_OLD_INODE_SIZE);
        let stored = self.bytes.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes([stored[0], stored[1]])))
    }

    /// The fields after the first 128 bytes that `i_extra_isize` includes; others are zero.
    pub fn extra(&self) -> RawInodeExtra {
        let room = self.bytes.get(usize::from(GOOD_OLD_INODE_SIZE)..).unwrap_or_default();
        let len = self.extra_isize().unwrap_or(0).min(room.len());
        RawInodeExtra::of_record(&room[..len])
    }

    /// Whether the field that ends `end` bytes after the first 128 exists.
    pub fn has_extra(&self, end: usize) -> bool {
        self.extra_isize().is_some_and(|size| size >= end)
    }

    /// The mode.
    pub fn mode(&self) -> u16 {
        self.base().i_mode.get()
    }

    /// The file type in the mode.
    pub fn file_type(&self) -> Option<FileType> {
        FileType::of_mode(self.mode())
    }

    /// Whether the mode says that it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode() & FILE_TYPE_MASK == FileType::Directory.mode()
    }

    /// The size in bytes, both halves.
    pub fn size(&self) -> u64 {
        let base = self.base();
        u64::from(base.i_size_lo.get()) | u64::from(base.i_size_high.get()) << 32
    }

    /// The owner.
    pub fn uid(&self) -> u32 {
        let base = self.base();
        u32::from(base.i_uid.get()) | u32::from(base.i_uid_high.get()) << 16
    }

    /// The owning group.
    pub fn gid(&self) -> u32 {
        let base = self.base();
        u32::from(base.i_gid.get()) | u32::from(base.i_gid_high.get()) << 16
    }

    /// The flags.
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.base().i_flags.get())
    }

    /// The map, the target of a fast symlink, or the data inside the inode.
    pub fn i_block(&self) -> [u8; I_BLOCK_SIZE] {
        self.base().i_block
    }

    /// The block of extended attributes; 0 for none.
    pub fn file_acl(&self, geometry: &Geometry) -> BlockNo {
        let base = self.base();
        let high = match geometry.has_incompat(extant_ondisk::IncompatFeatures::BIT64) {
            true => u64::from(base.i_file_acl_high.get()) << 32,
            false => 0,
        };
        BlockNo(u64::from(base.i_file_acl_lo.get()) | high)
    }

    /// `i_blocks`, with its high half where the volume has one.
    pub fn blocks(&self, geometry: &Geometry) -> u64 {
        let base = self.base();
        let has_high = geometry.has_ro_compat(extant_ondisk::RoCompatFeatures::HUGE_FILE);
        let high = if has_high { u64::from(base.i_blocks_high.get()) << 32 } else { 0 };
        u64::from(base.i_blocks_lo.get()) | high
    }

    /// Whether it is mapped by extents.
    pub fn is_extents(&self) -> bool {
        self.flags().contains(InodeFlags::EXTENTS)
    }

    /// Whether its data are inside the inode.
    pub fn is_inline(&self) -> bool {
        self.flags().contains(InodeFlags::INLINE_DATA)
    }

    /// Whether it is a symlink whose target is in the inode: one without blocks of its own.
    pub fn is_fast_symlink(&self, geometry: &Geometry) -> bool {
        if self.file_type() != Some(FileType::Symlink) || self.is_inline() {
            return false;
        }
        let attributes = match self.file_acl(geometry).0 {
            0 => 0,
            _ => geometry.cluster_size() / extant_ondisk::inode::SECTOR,
        };
        self.blocks(geometry).saturating_sub(attributes) == 0
            && !self.flags().contains(InodeFlags::EXTENTS)
            && self.size() < I_BLOCK_SIZE as u64
    }

    /// The time of the last change of the data.
    pub fn mtime(&self) -> Timestamp {
        let extra = self.has_extra(12).then(|| self.extra().i_mtime_extra.get());
        Timestamp::decode(self.base().i_mtime.get(), extra)
    }

    /// The time of the last access.
    pub fn atime(&self) -> Timestamp {
        let extra = self.has_extra(16).then(|| self.extra().i_atime_extra.get());
        Timestamp::decode(self.base().i_atime.get(), extra)
    }

    /// The space after the fields, for extended attributes.
    pub fn xattr_space(&self) -> &[u8] {
        let fields = usize::from(GOOD_OLD_INODE_SIZE) + self.extra_isize().unwrap_or(0);
        if self.extra_isize().is_none_or(|size| size == 0) {
            return &[];
        }
        self.bytes.get(fields..).unwrap_or_default()
    }
}
