//! Reading a volume, be it changed or not.

use crate::error::Error;
use crate::read::dir::DirEntry;
use crate::read::dir_block::{self, EntryTarget};
use crate::read::inode::{self, LoadedInode};
use crate::read::mapping::{self, Extents, Mapping};
use crate::read::path::{self, Follow};
use crate::read::statfs::StatFs;
use crate::read::xattr::{AclKind, XattrInfo};
use crate::read::{group, symlink};
use crate::source::MetadataRead;
use extant_device::Device;
use extant_ondisk::acl::Acl;
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{FileBlock, GroupNo, InodeNo};
use std::ops::Range;
use std::sync::Arc;

/// The calls that read a volume: of a [`Reader`](crate::Reader), which never writes, and of the
/// engine of a volume that is changed, where they see what was changed before. Any number of
/// threads may call at once.
pub trait VolumeRead: MetadataRead<Block = Arc<[u8]>> + Sized + Send + Sync {
    /// The entries of a directory.
    type ReadDir<'v>: Iterator<Item = Result<DirEntry, Error>>
    where
        Self: 'v;

    /// The device that is read: with a journal replayed in memory an overlay of the one that was
    /// opened.
    fn device(&self) -> &Arc<dyn Device>;

    /// An inode in use.
    ///
    /// # Errors
    /// [`Error::NoSuchInode`], [`Error::FreeInode`], a broken inode, or the device failed.
    fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error>;

    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`], a broken directory,
    /// or the device failed.
    fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<EntryTarget, Error>;

    /// Reads a file's bytes from `offset` on and returns their number: fewer than asked for only at
    /// its end. Holes and unwritten blocks are zeros.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::WrongFileType`], [`Error::Encrypted`], a broken map, or
    /// the device failed.
    fn read(&self, file: InodeNo, offset: u64, buffer: &mut [u8]) -> Result<usize, Error>;

    /// Like [`Self::read`] with an inode that was loaded before. Where the volume is changed the
    /// file is read as it is now.
    ///
    /// # Errors
    /// As [`Self::read`].
    fn read_loaded(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error>;

    /// The runs of all blocks of a file, directory or long symbolic link in order, holes between
    /// them included, merged where they lie together. They end with the last mapped run or the
    /// file's end, whichever is later: blocks past the end may be allocated.
    ///
    /// # Errors
    /// A broken inode; the iterator ends after the first error in the map.
    fn extents(&self, file: InodeNo)
    -> Result<impl Iterator<Item = Result<Mapping, Error>>, Error>;

    /// The byte ranges of a file that may hold something other than zeros, in order; inline data
    /// are one.
    ///
    /// # Errors
    /// A broken inode; the iterator ends after the first error in the map.
    fn data_segments(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Range<u64>, Error>>, Error>;

    /// The first byte at or after `offset` that may hold data; `None` if only a hole or the file's
    /// end follows. Unwritten blocks are a hole.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::WrongFileType`], a broken map, or the device failed.
    fn seek_data(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error>;

    /// The first byte at or after `offset` that lies in a hole; the file's end counts as one.
    /// `None` at or past the end.
    ///
    /// # Errors
    /// As [`Self::seek_data`].
    fn seek_hole(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error>;

    /// The entries of a directory from a cookie on, `.` and `..` too; 0 is the start. A block that
    /// is corrupt is an error among the entries, which continue after it.
    ///
    /// # Errors
    /// [`Error::NotADirectory`], a broken inode, or the device failed.
    fn read_dir(&self, dir: InodeNo, from: u64) -> Result<Self::ReadDir<'_>, Error>;

    /// The message of an error that [`Self::read_dir`] met in a directory: as the error is shown,
    /// but of a corrupt block with its number on the volume.
    fn read_dir_message(&self, dir: InodeNo, error: &Error) -> String {
        match self.any_inode(dir) {
            Ok(dir) => dir_block::message(self, &dir, error),
            Err(_) => error.to_string(),
        }
    }

    /// The target of a symbolic link; of an encrypted one the form without a key.
    ///
    /// # Errors
    /// [`Error::WrongFileType`], a broken link, or the device failed.
    fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Error>;

    /// The extended attributes of a file, as `listxattr` shows them to root.
    ///
    /// # Errors
    /// Broken attributes, or the device failed.
    fn xattrs(&self, file: InodeNo) -> Result<Vec<XattrInfo>, Error>;

    /// The value of an extended attribute by its full name, as `getxattr` gives it.
    ///
    /// # Errors
    /// [`Error::NoXattr`], a broken attribute, or the device failed.
    fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Error>;

    /// An access control list of a file.
    ///
    /// # Errors
    /// A broken list, or the device failed.
    fn acl(&self, file: InodeNo, kind: AclKind) -> Result<Option<Acl>, Error>;

    /// The figures of statfs. Free blocks and inodes are those that the descriptors count; where
    /// the volume is changed, those of now.
    ///
    /// # Errors
    /// A broken descriptor, or the device failed.
    fn stat_fs(&self) -> Result<StatFs, Error>;

    /// The superblock as it was when the volume was opened, after the journal's replay.
    fn superblock(&self) -> &Superblock {
        &self.info().superblock
    }

    /// The same as stored.
    fn raw_superblock(&self) -> &RawSuperblock {
        &self.info().raw_superblock
    }

    /// An inode in use or not, orphans and deleted ones too; one that was never used is
    /// [`Error::FreeInode`].
    ///
    /// # Errors
    /// As [`Self::inode`].
    fn any_inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        inode::load_any(self, number)
    }

    /// The runs of a range of logical blocks, holes included, as the volume has them: data that
    /// have no blocks yet are holes.
    fn extents_in(&self, file: LoadedInode, blocks: Range<FileBlock>) -> Extents<'_, Self> {
        mapping::extents(self, file, blocks.start, blocks.end)
    }

    /// A group's descriptor. Its checksum is right and its bitmaps and table lie on the volume.
    ///
    /// # Errors
    /// No such group, a broken descriptor, or the device failed.
    fn group_desc(&self, group: GroupNo) -> Result<GroupDesc, Error> {
        group::descriptor(self, group)
    }

    /// A group's bitmap, one block: as stored, or as implied if the group's flags say that it is
    /// not stored.
    ///
    /// # Errors
    /// A broken descriptor or bitmap, or the device failed.
    fn bitmap(&self, group: GroupNo, kind: BitmapKind) -> Result<Vec<u8>, Error> {
        group::bitmap(self, group, kind)
    }

    /// The file of a path, from the root.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::SymlinkLoop`],
    /// [`Error::NameTooLong`], corruption, or the device failed.
    fn resolve(&self, path: &[u8], follow: Follow) -> Result<LoadedInode, Error> {
        self.resolve_from(InodeNo::ROOT, path, follow)
    }

    /// The file of a path; a relative one starts at `start`.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    fn resolve_from(
        &self,
        start: InodeNo,
        path: &[u8],
        follow: Follow,
    ) -> Result<LoadedInode, Error> {
        path::resolve(self, start, path, follow)
    }
}

impl<V: VolumeRead> path::Walk for V {
    fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        VolumeRead::inode(self, number)
    }

    fn lookup_in(&self, dir: InodeNo, name: &[u8]) -> Result<EntryTarget, Error> {
        self.lookup(dir, name)
    }

    fn target(&self, link: &LoadedInode) -> Result<Vec<u8>, Error> {
        symlink::target(self, link)
    }
}

/// Implements [`MetadataRead`] and [`VolumeRead`] for a type that has one: `$with!(self, volume =>
/// call)` makes the call on it.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_volume_read {
    ($type:ty, $read_dir:ident, $with:ident) => {
        impl $crate::MetadataRead for $type {
            type Block = std::sync::Arc<[u8]>;

            fn info(&self) -> &VolumeInfo {
                $with!(self, it => it.info())
            }

            fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Self::Block, Error> {
                $with!(self, it => it.metadata(block, kind))
            }

            fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
                $with!(self, it => it.data(pieces))
            }

            fn descriptor_block(&self, index: u32) -> BlockNo {
                $with!(self, it => it.descriptor_block(index))
            }

            fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
                $with!(self, it => it.inode_table(group))
            }

            fn inode_block(&self, place: &RecordPlace) -> Result<(Self::Block, bool), Error> {
                $with!(self, it => it.inode_block(place))
            }
        }

        impl $crate::VolumeRead for $type {
            type ReadDir<'v> = $read_dir<'v>;

            fn device(&self) -> &Arc<dyn Device> {
                $with!(self, it => it.device())
            }

            fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
                $with!(self, it => it.inode(number))
            }

            fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<EntryTarget, Error> {
                $with!(self, it => it.lookup(dir, name))
            }

            fn read(&self, file: InodeNo, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
                $with!(self, it => it.read(file, offset, buffer))
            }

            fn read_loaded(
                &self,
                file: &LoadedInode,
                offset: u64,
                buffer: &mut [u8],
            ) -> Result<usize, Error> {
                $with!(self, it => it.read_loaded(file, offset, buffer))
            }

            fn extents(
                &self,
                file: InodeNo,
            ) -> Result<impl Iterator<Item = Result<Mapping, Error>>, Error> {
                type Runs<'v> = Box<dyn Iterator<Item = Result<Mapping, Error>> + 'v>;
                $with!(self, it => it.extents(file).map(|runs| Box::new(runs) as Runs<'_>))
            }

            fn data_segments(
                &self,
                file: InodeNo,
            ) -> Result<impl Iterator<Item = Result<Range<u64>, Error>>, Error> {
                type Segments<'v> = Box<dyn Iterator<Item = Result<Range<u64>, Error>> + 'v>;
                $with!(self, it => it.data_segments(file).map(|it| Box::new(it) as Segments<'_>))
            }

            fn seek_data(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
                $with!(self, it => it.seek_data(file, offset))
            }

            fn seek_hole(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
                $with!(self, it => it.seek_hole(file, offset))
            }

            fn read_dir(&self, dir: InodeNo, from: u64) -> Result<Self::ReadDir<'_>, Error> {
                $with!(self, it => it.read_dir(dir, from).map(Into::into))
            }

            fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Error> {
                $with!(self, it => it.read_link(link))
            }

            fn xattrs(&self, file: InodeNo) -> Result<Vec<XattrInfo>, Error> {
                $with!(self, it => it.xattrs(file))
            }

            fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Error> {
                $with!(self, it => it.xattr(file, name))
            }

            fn acl(&self, file: InodeNo, kind: AclKind) -> Result<Option<Acl>, Error> {
                $with!(self, it => it.acl(file, kind))
            }

            fn stat_fs(&self) -> Result<StatFs, Error> {
                $with!(self, it => it.stat_fs())
            }

            fn resolve_from(
                &self,
                start: InodeNo,
                path: &[u8],
                follow: Follow,
            ) -> Result<LoadedInode, Error> {
                $with!(self, it => it.resolve_from(start, path, follow))
            }
        }
    };
}
