//! A file system opened on a device.

use crate::cache::BlockCache;
use crate::error::Error;
use crate::info::VolumeInfo;
use crate::live::Live;
use crate::live::delay::Delayed;
use crate::live::inodes::LockAs;
use crate::live::mmp::MmpMark;
use crate::open::OpenOptions;
use crate::read::ahead::ReadAhead;
use crate::read::dir::{self, BrokenIndex, Found};
use crate::read::inode::{self, LoadedInode};
use crate::read::mapping::{self, Extents, Mapping};
use crate::read::path::{self, Follow};
use crate::read::xattr::{self, AclKind, XattrInfo};
use crate::read::{data, group, symlink};
use crate::source::{BlockKind, DataPiece, MetadataRead, RecordPlace};
use extant_device::env::Worker;
use extant_device::sync::atomic::Ordering;
use extant_device::{Device, Request};
use extant_journal::Recovered;
use extant_ondisk::acl::Acl;
use extant_ondisk::bitmap::BitmapKind;
use extant_ondisk::dirent::MAX_NAME_LEN;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::inode::FileType;
use extant_ondisk::superblock::{RawSuperblock, Superblock};
use extant_ondisk::{
    BlockNo, FileBlock, Flaw, Geometry, GroupNo, IncompatFeatures, InodeNo, Place, Uuid,
};
use std::ops::Range;
use std::sync::Arc;

/// Of so many clusters one is kept for maps that grow, and of all so many at most.
const MAP_SHARE: u64 = 50;
const MOST_FOR_MAPS: u64 = 4096;

/// Clusters that are kept for maps, as the kernel keeps them (`admin-guide/ext4.rst`, "reserved_clusters"): a fiftieth of all, 4096 at
/// most, where files may have extents. With them a full volume can cut an extent that is punched or written in the middle.
pub(crate) fn clusters_for_maps(geometry: &Geometry) -> u64 {
    if !geometry.has_incompat(IncompatFeatures::EXTENTS) {
        return 0;
    }
    let clusters = geometry.blocks_count / u64::from(geometry.blocks_per_cluster);
    (clusters / MAP_SHARE).min(MOST_FOR_MAPS)
}

/// A file system on a device. It may be used by many threads at once.
///
/// ```no_run
/// use extant_volume::{Follow, Volume};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = extant_device::OpenOptions::new().open(std::path::Path::new("disk.img"))?;
/// let volume = Volume::open(std::sync::Arc::new(device))?;
/// let hosts = volume.resolve(b"/etc/hosts", Follow::Yes)?;
/// let mut bytes = vec![0; 4096];
/// let count = volume.read(hosts.number, 0, &mut bytes)?;
/// println!("{}", String::from_utf8_lossy(&bytes[..count]));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Volume {
    /// Who writes delayed data in the background. It goes first: what it does under way is done then.
    pub(crate) writer: Option<Worker>,
    /// The mark of multiple-mount protection, and who keeps it alive.
    pub(crate) mmp: Option<(Worker, Arc<MmpMark>)>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) info: VolumeInfo,
    /// The group whose backup superblock the volume was opened by.
    pub(crate) backup: Option<GroupNo>,
    pub(crate) source: Source,
    pub(crate) recovered: Option<Recovered>,
    pub(crate) on_broken_index: BrokenIndex,
    /// Who reads in sequence.
    pub(crate) ahead: ReadAhead,
    /// Blocks of an inode table that are read at once.
    pub(crate) table_run: u32,
}

/// Where metadata blocks come from.
#[derive(Debug)]
pub(crate) enum Source {
    /// The device, through a cache: the volume is only read.
    Cached(BlockCache),
    /// The journal's frames: the volume is being changed.
    Live(Arc<Live>),
}

/// Runs of a file's blocks.
type Runs<'v> = Box<dyn Iterator<Item = Result<Mapping, Error>> + 'v>;

impl path::Walk for Volume {
    fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        self.still_there(self.inode(number))
    }

    fn lookup_in(&self, dir: InodeNo, name: &[u8]) -> Result<Found, Error> {
        self.still_there(self.lookup(dir, name))
    }

    fn target(&self, link: &LoadedInode) -> Result<Vec<u8>, Error> {
        symlink::target(self, link)
    }
}

impl Volume {
    /// On a live volume a file may go between two steps of a path.
    fn still_there<T>(&self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Err(Error::FreeInode(_)) if matches!(self.source, Source::Live(_)) => {
                Err(Error::NotFound)
            }
            other => other,
        }
    }
}

/// What statfs tells of a volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StatFs {
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks that files can use: those of the volume but for its own metadata.
    pub blocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Free blocks but for those reserved for the reserved user, and for those that the kernel's ext4 does not tell of either.
    pub available_blocks: u64,
    /// Inodes.
    pub inodes: u32,
    /// Free inodes.
    pub free_inodes: u64,
    /// Bytes of the longest name.
    pub max_name_len: u32,
    /// Identity of the volume.
    pub uuid: Uuid,
}

impl MetadataRead for Volume {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        &self.info
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        let geometry = &self.info.geometry;
        let cache = match &self.source {
            Source::Cached(cache) => cache,
            Source::Live(live) => return Ok(live.frame(self, block, kind)?.snapshot()),
        };
        cache.get(
            block,
            kind,
            || {
                if !geometry.contains(block, 1) {
                    let flaw = Flaw::Rule("a block past the volume's end was asked for");
                    return Err(flaw.at(Place::Block(block)).into());
                }
                if let BlockKind::InodeTable { group } = kind
                    && let Some(bytes) = self.read_table(cache, block, group)
                {
                    return Ok(bytes);
                }
                let mut bytes = vec![0; geometry.block_len()];
                self.device.read_at(geometry.byte_of(block), &mut bytes)?;
                Ok(bytes.into())
            },
            |bytes| Ok(kind.check(bytes, block, geometry)?),
        )
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        let mut batch: Vec<_> =
            pieces.iter_mut().map(|piece| Request::read(piece.offset, piece.buffer)).collect();
        Ok(self.device.submit(&mut batch)?)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        let Source::Live(live) = &self.source else {
            return Ok(group::descriptor(self, group)?.inode_table);
        };
        // A table never moves.
        let known = live.tables.get(group.0 as usize);
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
        let Source::Live(live) = &self.source else {
            return Ok((self.metadata(place.block, place.kind())?, false));
        };
        let frame = live.frame(self, place.block, place.kind())?;
        let (bytes, unsealed) = frame.snapshot_and_unsealed();
        let part = inode::part_of_block(&self.info.geometry, place.index);
        Ok((bytes, part.is_some_and(|part| unsealed & part != 0)))
    }

    fn descriptor_block(&self, index: u32) -> BlockNo {
        let geometry = &self.info.geometry;
        self.backup
            .and_then(|group| geometry.desc_block_backup(index, group))
            .unwrap_or_else(|| geometry.desc_block(index))
    }
}

impl Volume {
    /// Opens a volume for reading with the default [`OpenOptions`]: a journal that must be replayed is replayed into memory.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub fn open(device: Arc<dyn Device>) -> Result<Self, Error> {
        OpenOptions::default().open(device)
    }

    /// Sizes and counts.
    pub fn geometry(&self) -> &Geometry {
        &self.info.geometry
    }

    /// The superblock, after the journal's replay.
    pub fn superblock(&self) -> &Superblock {
        &self.info.superblock
    }

    /// The superblock as stored.
    pub fn raw_superblock(&self) -> &RawSuperblock {
        &self.info.raw_superblock
    }

    /// The device that is read: with a replayed journal an overlay of the one that was opened.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// What the journal's replay did; `None` when there was nothing to replay.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// An inode in use.
    ///
    /// # Errors
    /// [`Error::NoSuchInode`], [`Error::FreeInode`], a broken inode, or the device failed.
    pub fn inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        self.with_file(number, |inode, delayed| Ok(self.seen(inode, delayed)))
    }

    /// An inode as it is seen: with the size and the space of data that are delayed.
    pub(crate) fn seen(&self, inode: &LoadedInode, delayed: &Delayed) -> LoadedInode {
        let mut seen = inode.clone();
        if !delayed.is_empty() {
            let bytes = delayed.data_reserved() * self.geometry().cluster_size();
            seen.inode.size = delayed.size(inode.size);
            seen.inode.blocks =
                seen.blocks.saturating_add(bytes / inode.space_unit(self.geometry()));
        }
        seen
    }

    /// Reads with a file that nobody changes meanwhile, and its delayed data.
    pub(crate) fn with_file<R>(
        &self,
        number: InodeNo,
        read: impl FnOnce(&LoadedInode, &Delayed) -> Result<R, Error>,
    ) -> Result<R, Error> {
        match &self.source {
            Source::Cached(_) => read(&inode::load(self, number)?, &Delayed::default()),
            Source::Live(live) => {
                let inode = live.inodes.get(number);
                let result =
                    inode.read(self, LockAs::Dir).and_then(|inode| read(&inode, inode.delayed()));
                self.noted(result)
            }
        }
    }

    /// What the background writer of a live volume works with: the volume, but for what is live.
    pub(crate) fn twin(&self) -> Self {
        Self {
            writer: None,
            mmp: None,
            device: self.device.clone(),
            info: self.info.clone(),
            backup: self.backup,
            source: Source::Cached(BlockCache::new(0, 1)),
            recovered: None,
            on_broken_index: self.on_broken_index,
            ahead: ReadAhead::default(),
            table_run: self.table_run,
        }
    }

    /// Reads with an inode that nobody changes meanwhile.
    pub(crate) fn with_inode<R>(
        &self,
        number: InodeNo,
        read: impl FnOnce(&LoadedInode) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.with_file(number, |inode, _| read(inode))
    }

    /// An inode in use or not, orphans and deleted ones too; one that was never used is [`Error::FreeInode`].
    ///
    /// # Errors
    /// As [`Self::inode`].
    pub fn any_inode(&self, number: InodeNo) -> Result<LoadedInode, Error> {
        inode::load_any(self, number)
    }

    /// Looks a name up in a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::NameTooLong`], a broken directory, or the device failed.
    pub fn lookup(&self, dir: InodeNo, name: &[u8]) -> Result<Found, Error> {
        let search = |dir: &LoadedInode| dir::lookup(self, dir, name, self.on_broken_index);
        let Source::Live(live) = &self.source else { return self.with_inode(dir, search) };
        let inode = live.inodes.get(dir);
        let found = inode
            .read(self, LockAs::Dir)
            .and_then(|dir| live.names.find(&dir, name, || search(&dir)));
        self.noted(found)
    }

    /// Reads a file's bytes from `offset` on and says how many there were: fewer than asked for only at its end. Holes and
    /// unwritten blocks are zeros.
    ///
    /// # Errors
    /// [`Error::IsADirectory`], [`Error::WrongFileType`], [`Error::Encrypted`], a broken map, or the device failed.
    pub fn read(&self, file: InodeNo, offset: u64, buffer: &mut [u8]) -> Result<usize, Error> {
        self.with_file(file, |file, delayed| match delayed.is_empty() {
            true => self.read_stored(file, offset, buffer),
            false => self.read_delayed(file, delayed, offset, buffer),
        })
    }

    /// Like [`Self::read`] with an inode that was loaded before. On a live volume the file is read as it is now.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_loaded(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        match &self.source {
            Source::Cached(_) => self.read_stored(file, offset, buffer),
            Source::Live(_) => self.read(file.number, offset, buffer),
        }
    }

    /// Reads what a file has on the volume.
    fn read_stored(
        &self,
        file: &LoadedInode,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize, Error> {
        match file.file_type() {
            FileType::Regular => {}
            FileType::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::WrongFileType),
        }
        if file.is_encrypted() {
            return Err(Error::Encrypted(file.number));
        }
        if self.is_journalled(file) {
            return self.read_newest(file, offset, buffer);
        }
        self.read_ahead(file, offset, buffer.len());
        data::read(self, file, offset, buffer)
    }

    /// The runs of all blocks of a file, directory or long symbolic link in order, holes between them included, merged where
    /// they lie together. They end with the last mapped run or the file's end, whichever is later: blocks past the end may be
    /// allocated.
    ///
    /// # Errors
    /// A broken inode; the iterator ends after the first error in the map.
    pub fn extents(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Mapping, Error>>, Error> {
        let (inode, all) = self.runs(file, |_| FileBlock(u64::MAX))?;
        let end = inode.size.div_ceil(u64::from(self.geometry().block_size));
        Ok(all.filter_map(move |run| match run {
            Ok(run) if run.is_hole() && run.block.0 >= end => None,
            // The hole behind the last mapped run reaches to the format's end.
            Ok(run) if run.is_hole() && run.end().0 == extant_ondisk::MAX_FILE_BLOCKS => {
                Some(Ok(Mapping { len: end - run.block.0, ..run }))
            }
            other => Some(other),
        }))
    }

    /// A file and the runs of its blocks up to `end`; of a live volume as they are at one moment.
    fn runs(
        &self,
        file: InodeNo,
        end: impl Fn(&LoadedInode) -> FileBlock,
    ) -> Result<(LoadedInode, Runs<'_>), Error> {
        if let Source::Live(live) = &self.source {
            // Delayed data have no blocks yet.
            self.write_back_file(live, &live.inodes.get(file));
        }
        self.with_inode(file, |inode| {
            let runs = self.extents_in(inode.clone(), FileBlock(0)..end(inode));
            let runs: Runs<'_> = match &self.source {
                Source::Cached(_) => Box::new(runs),
                Source::Live(_) => Box::new(runs.collect::<Vec<_>>().into_iter()),
            };
            Ok((inode.clone(), runs))
        })
    }

    /// The runs of a range of logical blocks, holes included.
    pub fn extents_in(&self, file: LoadedInode, blocks: Range<FileBlock>) -> Extents<'_, Self> {
        mapping::extents(self, file, blocks.start, blocks.end)
    }

    /// The byte ranges of a file that may hold something other than zeros, in order; inline data are one.
    ///
    /// # Errors
    /// A broken inode; the iterator ends after the first error in the map.
    pub fn data_segments(
        &self,
        file: InodeNo,
    ) -> Result<impl Iterator<Item = Result<Range<u64>, Error>>, Error> {
        let block_size = u64::from(self.geometry().block_size);
        let (inode, runs) = self.runs(file, |inode| FileBlock(inode.size.div_ceil(block_size)))?;
        let (size, bits) = (inode.size, self.geometry().block_bits());
        let inline_len = if inode.is_inline() { data::inline_len(self, &inode)? } else { 0 };
        let inline = (inline_len > 0).then_some(Ok(0..inline_len));
        let mapped = runs.filter_map(move |run| match run {
            Ok(Mapping { block, len, target: mapping::Target::Written(_) }) => {
                let end = (block.0 + len) << bits;
                Some(Ok(block.0 << bits..end.min(size)))
            }
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        });
        Ok(inline.into_iter().chain(mapped))
    }

    /// The target of a symbolic link; of an encrypted one the form without a key.
    ///
    /// # Errors
    /// [`Error::WrongFileType`], a broken link, or the device failed.
    pub fn read_link(&self, link: InodeNo) -> Result<Vec<u8>, Error> {
        self.with_inode(link, |link| symlink::target(self, link))
    }

    /// The extended attributes of a file, as `listxattr` shows them to root.
    ///
    /// # Errors
    /// Broken attributes, or the device failed.
    pub fn xattrs(&self, file: InodeNo) -> Result<Vec<XattrInfo>, Error> {
        self.with_inode(file, |file| xattr::list(self, file))
    }

    /// The value of an extended attribute by its full name, as `getxattr` gives it.
    ///
    /// # Errors
    /// [`Error::NoXattr`], a broken attribute, or the device failed.
    pub fn xattr(&self, file: InodeNo, name: &[u8]) -> Result<Vec<u8>, Error> {
        self.with_inode(file, |file| xattr::get(self, file, name))
    }

    /// An access control list of a file.
    ///
    /// # Errors
    /// A broken list, or the device failed.
    pub fn acl(&self, file: InodeNo, kind: AclKind) -> Result<Option<Acl>, Error> {
        self.with_inode(file, |file| xattr::acl(self, file, kind))
    }

    /// The file of a path, from the root.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotADirectory`], [`Error::SymlinkLoop`], [`Error::NameTooLong`], something broken on the
    /// way, or the device failed.
    pub fn resolve(&self, path: &[u8], follow: Follow) -> Result<LoadedInode, Error> {
        self.resolve_from(InodeNo::ROOT, path, follow)
    }

    /// The file of a path; a relative one starts at `start`.
    ///
    /// # Errors
    /// As [`Self::resolve`].
    pub fn resolve_from(
        &self,
        start: InodeNo,
        path: &[u8],
        follow: Follow,
    ) -> Result<LoadedInode, Error> {
        path::resolve(self, start, path, follow)
    }

    /// A group's descriptor. Its checksum is right and its bitmaps and table lie on the volume.
    ///
    /// # Errors
    /// No such group, a broken descriptor, or the device failed.
    pub fn group_desc(&self, group: GroupNo) -> Result<GroupDesc, Error> {
        group::descriptor(self, group)
    }

    /// A group's bitmap, one block: as stored, or as implied where the group's flags say that it is not stored.
    ///
    /// # Errors
    /// A broken descriptor or bitmap, or the device failed.
    pub fn bitmap(&self, group: GroupNo, kind: BitmapKind) -> Result<Vec<u8>, Error> {
        group::bitmap(self, group, kind)
    }

    /// The figures of statfs. Free blocks and inodes are those that the descriptors count, or the live counts.
    ///
    /// # Errors
    /// A broken descriptor, or the device failed.
    pub fn stat_fs(&self) -> Result<StatFs, Error> {
        let geometry = self.geometry();
        let (free_clusters, free_inodes) = match &self.source {
            Source::Cached(_) => group::free_counts(self)?,
            Source::Live(live) => (live.allocator.free_clusters(), live.allocator.free_inodes()),
        };
        let for_maps = match &self.source {
            Source::Cached(_) => clusters_for_maps(geometry),
            Source::Live(live) => live.allocator.options().map_clusters,
        };
        let per_cluster = u64::from(geometry.blocks_per_cluster);
        let free_blocks = free_clusters.saturating_mul(per_cluster);
        let overhead = group::overhead(self, self.superblock())?;
        let for_maps = for_maps.saturating_mul(per_cluster);
        let kept_blocks = self.superblock().reserved_blocks.saturating_add(for_maps);
        Ok(StatFs {
            block_size: geometry.block_size,
            blocks: geometry.blocks_count.saturating_sub(overhead),
            free_blocks,
            available_blocks: free_blocks.saturating_sub(kept_blocks),
            inodes: geometry.inodes_count,
            free_inodes,
            max_name_len: MAX_NAME_LEN as u32,
            uuid: self.superblock().uuid,
        })
    }
}
