//! A volume that is only read.

use crate::cache::BlockCache;
use crate::error::Error;
use crate::info::VolumeInfo;
use crate::read::ahead::FileReadAhead;
use crate::read::dir::{self, BrokenIndex, ReadDir};
use crate::read::dir_block::EntryTarget;
use crate::read::inode::{self, LoadedInode};
use crate::read::mapping::Mapping;
use crate::read::seek::{Seek, seek};
use crate::read::statfs::{Free, StatFs, stat_fs};
use crate::read::xattr::{self, AclKind, XattrInfo};
use crate::read::{data, group, inode_tables, runs, symlink};
use crate::source::{BlockKind, DataPiece, MetadataRead};
use crate::volume_read::VolumeRead;
use extant_device::{Device, Request};
use extant_journal::Recovered;
use extant_ondisk::acl::Acl;
use extant_ondisk::{BlockNo, FileBlock, Flaw, Geometry, GroupNo, InodeNo, Location};
use std::ops::Range;
use std::sync::Arc;

/// A volume on a device that is only read: nothing is ever written to the device. It may be used by
/// many threads at once. Its calls are those of [`VolumeRead`].
///
/// ```no_run
/// use extant_reader::{Follow, Reader, VolumeRead};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = extant_device::FileDeviceOptions::new().open(std::path::Path::new("disk.img"))?;
/// let reader = Reader::open(std::sync::Arc::new(device))?;
/// let hosts = reader.resolve(b"/etc/hosts", Follow::Yes)?;
/// let mut bytes = vec![0; 4096];
/// let count = reader.read(hosts.number, 0, &mut bytes)?;
/// println!("{}", String::from_utf8_lossy(&bytes[..count]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Reader {
    pub(crate) info: VolumeInfo,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) cache: BlockCache,
    /// The group whose backup superblock the volume was opened by.
    pub(crate) backup: Option<GroupNo>,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) on_broken_index: BrokenIndex,
    /// The sequential readers.
    pub(crate) ahead: FileReadAhead,
    /// Blocks of an inode table that are read at once.
    pub(crate) table_run: u32,
}

impl Reader {
    /// Sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.info.geometry
    }

    /// The result of the journal's replay; `None` if no replay was needed.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// A block that is not in memory.
    fn read_block(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        let geometry = self.geometry();
        if !geometry.contains(block, 1) {
            let flaw = Flaw::Rule("block past the end of the volume");
            return Err(flaw.at(Location::Block(block)).into());
        }
        if let BlockKind::InodeTable { group } = kind {
            let run = inode_tables::run_of_table(self, self.table_run, block, group);
            let read =
                inode_tables::read_run(geometry, (&*self.device, &self.cache), block, group, &run);
            if let Some(bytes) = read {
                return Ok(bytes);
            }
        }
        let mut bytes = vec![0; geometry.block_len()];
        self.device.read_at(geometry.byte_of(block), &mut bytes)?;
        Ok(bytes.into())
    }
}

impl MetadataRead for Reader {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        &self.info
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        let read = || self.read_block(block, kind);
        self.cache.get(block, kind, read, |bytes| Ok(kind.check(bytes, block, self.geometry())?))
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        let mut batch: Vec<_> =
            pieces.iter_mut().map(|piece| Request::read(piece.offset, piece.buffer)).collect();
        Ok(self.device.submit(&mut batch)?)
    }

    fn descriptor_block(&self, index: u32) -> BlockNo {
        let geometry = self.geometry();
        self.backup
            .and_then(|group| geometry.desc_block_backup(index, group))
            .unwrap_or_else(|| geometry.desc_block(index))
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        Ok(group::descriptor(self, group)?.inode_table)
    }
}

impl VolumeRead for Reader {
    type ReadDir<'v> = ReadDir<'v, Self>;

    fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        inode::load(self, number)
    }

    fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<EntryTarget, Error> {
        dir::lookup(self, &inode::load(self, dir)?, name, self.on_broken_index)
    }

    fn read(&self, file: InodeNo, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.read_loaded(&inode::load(self, file)?, offset, buffer)
    }

    fn read_loaded(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        data::check_readable(file)?;
        self.ahead.note_read(self, &*self.device, file, offset, buffer.len());
        data::read(self, file, offset, buffer)
    }

    fn extents(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Mapping, Error>>, Error> {
        let inode = inode::load(self, file)?;
        let all = self.extents_in(inode.clone(), FileBlock(0)..FileBlock(u64::MAX));
        Ok(runs::to_end(self.geometry(), &inode, all))
    }

    fn data_segments(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Range<u64>, Error>>, Error> {
        let inode = inode::load(self, file)?;
        let end = FileBlock(inode.size.div_ceil(u64::from(self.geometry().block_size)));
        let all = self.extents_in(inode.clone(), FileBlock(0)..end);
        runs::data_segments(self, &inode, all)
    }

    fn seek_data(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        let file = inode::load(self, file)?;
        seek(self, &file, file.size, (Seek::Data, offset), |_| None)
    }

    fn seek_hole(&self, file: InodeNo, offset: u64) -> Result<Option<u64>, Error> {
        let file = inode::load(self, file)?;
        seek(self, &file, file.size, (Seek::Hole, offset), |_| None)
    }

    fn read_dir(&self, dir: InodeNo, from: u64) -> Result<ReadDir<'_, Self>, Error> {
        let inode = inode::load(self, dir)?;
        inode.as_dir()?;
        dir::read_dir(self, inode, from)
    }

    fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Error> {
        symlink::target(self, &inode::load(self, link)?)
    }

    fn xattrs(&self, file: InodeNo) -> Result<Vec<XattrInfo>, Error> {
        xattr::list(self, &inode::load(self, file)?)
    }

    fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Error> {
        xattr::get(self, &inode::load(self, file)?, name)
    }

    fn acl(&self, file: InodeNo, kind: AclKind) -> Result<Option<Acl>, Error> {
        xattr::acl(self, &inode::load(self, file)?, kind)
    }

    fn stat_fs(&self) -> Result<StatFs, Error> {
        let (clusters, inodes) = group::free_counts(self)?;
        let for_maps = self.geometry().clusters_for_maps();
        stat_fs(self, Free { clusters, inodes, for_maps })
    }
}
