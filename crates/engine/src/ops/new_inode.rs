//! The first fields of a new inode.

use super::Credentials;
use crate::edit::Edit;
use crate::engine::Engine;
use extant_ondisk::extent::OwnedNode;
use extant_ondisk::inode::{
    FileType, GOOD_OLD_INODE_SIZE, I_BLOCK_SIZE, Inode, InodeFlags, NEW_EXTRA_ISIZE, SETGID,
};
use extant_ondisk::superblock::DefaultMountOptions;
use extant_ondisk::{InodeNo, RoCompatFeatures};
use extant_reader::Error;
use extant_reader::read::inode::LoadedInode;

/// `i_extra_isize` from which on there is a creation time.
const EXTRA_SIZE_WITH_CRTIME: u16 = 24;
/// `i_extra_isize` from which on there is a project.
const EXTRA_SIZE_WITH_PROJECT: u16 = 32;

/// Flags that a directory passes on to what is made in it.
const INHERITED: InodeFlags = InodeFlags::SECURE_DELETION
    .union(InodeFlags::UNDELETE)
    .union(InodeFlags::COMPRESSED)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NO_COMPRESSION)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);
/// Flags that only directories inherit.
const OF_DIRECTORIES: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::PROJECT_INHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::TOPDIR);
/// Flags that files without data or names inherit.
const OF_OTHERS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// The flags that a new file in `dir` gets.
fn inherited_flags(dir: &Inode, file_type: FileType) -> InodeFlags {
    let passed = dir.flags & INHERITED;
    match file_type {
        FileType::Directory => passed,
        FileType::Regular => passed - OF_DIRECTORIES,
        _ => passed & OF_OTHERS,
    }
}

/// The mode, before the umask, and the group of a new file in `dir`.
pub(super) fn mode_and_gid(
    dir: &Inode,
    file_type: FileType,
    permissions: u16,
    by: &Credentials,
    passes_group: bool,
) -> (u16, u32) {
    let mut mode = file_type.mode() | (permissions & 0o7777);
    if dir.mode & SETGID == 0 {
        return (mode, if passes_group { dir.gid } else { by.gid });
    }
    if file_type == FileType::Directory {
        mode |= SETGID;
    }
    (mode, dir.gid)
}

impl Engine {
    /// A new file of a directory, with one link (a directory two) and nothing in it.
    pub(super) fn new_inode<E: Edit>(
        &self,
        edit: &E,
        number: InodeNo,
        dir: &Inode,
        (file_type, permissions): (FileType, u16),
        by: &Credentials,
    ) -> Result<LoadedInode, Error> {
        let geometry = self.geometry();
        let default = &self.sizes.info.superblock.default_mount_opts;
        let passes_group = (self.options.passes_group)
            .unwrap_or(default.contains(DefaultMountOptions::BSD_GROUPS));
        let (mode, gid) = mode_and_gid(dir, file_type, permissions, by, passes_group);
        let extra_isize = self.extra_isize();
        let mut flags = inherited_flags(dir, file_type);
        let mut i_block = [0; I_BLOCK_SIZE];
        let has_map = matches!(file_type, FileType::Regular | FileType::Directory);
        if has_map && self.sizes.info.maps_by_extents {
            flags |= InodeFlags::EXTENTS;
            OwnedNode::empty_leaf(I_BLOCK_SIZE).encode_into(&mut i_block);
        }
        let has_project = geometry.has_ro_compat(RoCompatFeatures::PROJECT);
        let passed_project =
            dir.project.filter(|_| dir.flags.contains(InodeFlags::PROJECT_INHERIT) && has_project);
        let now = edit.now();
        let inode = Inode {
            uid: by.uid,
            gid,
            crtime: (extra_isize >= EXTRA_SIZE_WITH_CRTIME).then_some(now),
            links: if file_type == FileType::Directory { 2 } else { 1 },
            flags,
            version: 1,
            i_block,
            generation: self.generation(),
            extra_isize,
            project: (extra_isize >= EXTRA_SIZE_WITH_PROJECT)
                .then_some(passed_project.unwrap_or(0)),
            ..Inode::new(geometry, mode, now)
        };
        Ok(LoadedInode { number, inode, xattr_space: Box::default() })
    }

    /// Bytes of fields after the first 128 in a new inode: those known today, and with extra_isize
    /// the number that the superblock wants, if they fit.
    fn extra_isize(&self) -> u16 {
        let geometry = self.geometry();
        let room = geometry.inode_size - GOOD_OLD_INODE_SIZE;
        if room < NEW_EXTRA_ISIZE {
            return 0;
        }
        if !geometry.has_ro_compat(RoCompatFeatures::EXTRA_ISIZE) {
            return NEW_EXTRA_ISIZE;
        }
        let superblock = &self.sizes.info.superblock;
        let wanted =
            NEW_EXTRA_ISIZE.max(superblock.want_extra_isize).max(superblock.min_extra_isize);
        if wanted > room || !wanted.is_multiple_of(4) { NEW_EXTRA_ISIZE } else { wanted }
    }
}
