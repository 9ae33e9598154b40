//! Reading a volume that is changed: blocks are frames of the journal, and files are read
//! as the last change left them.

use super::Engine;
use super::delay::DelayedData;
use super::inodes::LockClass;
use crate::ops::EngineReadDir;
use extant_device::{Device, Request};
use extant_ondisk::acl::Acl;
use extant_ondisk::{BlockNo, FileBlock, GroupNo, InodeNo};
use extant_reader::read::dir::{self};
use extant_reader::read::dir_block::EntryTarget;
use extant_reader::read::inode::{self, LoadedInode};
use extant_reader::read::mapping::Mapping;
use extant_reader::read::path::{self, Follow};
use extant_reader::read::seek::{Seek, seek};
use extant_reader::read::statfs::{Free, StatFs, stat_fs};
use extant_reader::read::xattr::{self, AclKind, XattrInfo};
use extant_reader::read::{data, group, runs, symlink};
use extant_reader::{
    BlockKind, DataPiece, Error, MetadataRead, RecordPlace, VolumeInfo, VolumeRead,
};
use extant_runtime::sync::atomic::Ordering;
use std::ops::Range;
use std::sync::Arc;
use std::vec::IntoIter;

impl MetadataRead for Engine {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        &self.sizes.newest().info
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        Ok(self.frame(block, kind)?.snapshot())
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        let mut batch: Vec<_> =
            pieces.iter_mut().map(|piece| Request::read(piece.offset, piece.buffer)).collect();
        Ok(self.device.submit(&mut batch)?)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        // A table never moves.
        let known = self.tables.get(group.0 as usize);
        match known.map(|table| table.load(Ordering::Relaxed)) {
            None | Some(0) => {
                let table = group::descriptor(self, group)?.inode_table;
                if let Some(known) = known {
                    known.store(table.0, Ordering::Relaxed);
                }
                Ok(table)
            }
            Some(table) => Ok(BlockNo(table)),
        }
    }

    fn inode_block(&self, place: &RecordPlace) -> Result<(Arc<[u8]>, bool), Error> {
        let frame = self.frame(place.block, place.kind())?;
        let (bytes, unsealed) = frame.snapshot_and_unsealed();
        let part = inode::part_of_block(self.geometry(), place.index);
        Ok((bytes, part.is_some_and(|part| unsealed & part != 0)))
    }
}

impl Engine {
    /// An inode as it is seen: with the size and the space of data that are delayed.
    pub(crate) fn seen(&self, inode: &LoadedInode, delayed: &DelayedData) -> LoadedInode {
        let mut seen = inode.clone();
        if !delayed.is_empty() {
            let bytes = delayed.data_reserved() * self.geometry().cluster_size();
            seen.inode.size = delayed.size(inode.size);
            seen.inode.blocks =
                seen.blocks.saturating_add(bytes / inode.space_unit(self.geometry()));
        }
        seen
    }

    /// Reads with a file that does not change, and its delayed data.
    pub(crate) fn with_file<R>(
        &self,
        number: InodeNo,
        read: impl FnOnce(&LoadedInode, &DelayedData) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let inode = self.inodes.get(number);
        let result =
            inode.read(self, LockClass::Dir).and_then(|inode| read(&inode, inode.delayed()));
        self.record_corruption(result)
    }

    /// Reads with an inode that does not change.
    pub(crate) fn with_inode<R>(
        &self,
        number: InodeNo,
        read: impl FnOnce(&LoadedInode) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_file(number, |inode, _| read(inode))
    }

    /// Reads what a file has on the volume.
    fn read_stored(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        data::check_readable(file)?;
        if self.is_journalled(file) {
            return self.read_newest(file, offset, buffer);
        }
        self.ahead.note_read(self, &*self.device, file, offset, buffer.len());
        data::read(self, file, offset, buffer)
    }

    /// A file and the runs of its blocks up to `end`, in one consistent state.
    fn runs(
        &self,
        file: InodeNo,
        end: impl Fn(&LoadedInode) -> FileBlock,
    ) -> Result<(LoadedInode, IntoIter<Result<Mapping, Error>>), Error> {
        // Delayed data have no blocks yet.
        self.write_back_file(&self.inodes.get(file));
        self.with_inode(file, |inode| {
            let runs: Vec<_> = self.extents_in(inode.clone(), FileBlock(0)..end(inode)).collect();
            Ok((inode.clone(), runs.into_iter()))
        })
    }

    fn seek(&self, file: InodeNo, wanted: (Seek, u64)) -> Result<Option<u64>, Error> {
        self.with_file(file, |file, delayed| {
            let next_pending = |block| delayed.next(block, self.geometry());
            seek(self, file, delayed.size(file.size), wanted, next_pending)
        })
    }
}

impl VolumeRead for Engine {
    type ReadDir<'v> = EngineReadDir<'v>;

    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        self.with_file(number, |inode, delayed| Ok(self.seen(inode, delayed)))
    }

    fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<EntryTarget, Error> {
        let inode = self.inodes.get(dir);
        let found = inode.read(self, LockClass::Dir).and_then(|dir| {
            self.names.find(&dir, name, || dir::lookup(self, &dir, name, self.on_broken_index))
        });
        self.record_corruption(found)
    }

    fn read(&self, file: InodeNo, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.with_file(file, |file, delayed| match delayed.is_empty() {
            true => self.read_stored(file, offset, buffer),
            false => self.read_delayed(file, delayed, offset, buffer),
        })
    }

    fn read_loaded(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        self.read(file.number, offset, buffer)
    }

    fn extents(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Mapping, Error>>, Error> {
        let (inode, all) = self.runs(file, |_| FileBlock(u64::MAX))?;
        Ok(runs::to_end(self.geometry(), &inode, all))
    }

    fn data_segments(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Range<u64>, Error>>, Error> {
        let block_size = u64::from(self.geometry().block_size);
        let (inode, all) = self.runs(file, |inode| FileBlock(inode.size.div_ceil(block_size)))?;
        runs::data_segments(self, &inode, all)
    }

    fn seek_data(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        self.seek(file, (Seek::Data, offset))
    }

    fn seek_hole(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        self.seek(file, (Seek::Hole, offset))
    }

    fn read_dir(&self, dir: InodeNo, from: u64) -> Result<EngineReadDir<'_>, Error> {
        EngineReadDir::new(self, dir, from)
    }

    fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Error> {
        self.with_inode(link, |link| symlink::target(self, link))
    }

    fn xattrs(&self, file: InodeNo) -> Result<Vec<XattrInfo>, Error> {
        self.with_inode(file, |file| xattr::list(self, file))
    }

    fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.with_inode(file, |file| xattr::get(self, file, name))
    }

    fn acl(&self, file: InodeNo, kind: AclKind) -> Result<Option<Acl>, Error> {
        self.with_inode(file, |file| xattr::acl(self, file, kind))
    }

    fn stat_fs(&self) -> Result<StatFs, Error> {
        let free = Free {
            clusters: self.allocator.free_clusters(),
            inodes: self.allocator.free_inodes(),
            for_maps: self.allocator.map_clusters(),
        };
        stat_fs(self, free)
    }

    fn resolve_from(
        &self,
        start: InodeNo,
        path: &[u8],
        follow: Follow,
    ) -> Result<LoadedInode, Error> {
        match path::resolve(self, start, path, follow) {
            // A file may go between two steps of a path.
            Err(Error::FreeInode(_)) => Err(Error::NotFound),
            other => other,
        }
    }
}
