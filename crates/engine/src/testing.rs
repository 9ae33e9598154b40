//! A volume changed in memory, without a journal: what the algorithms over [`Edit`] are tested on.
//! [`ScratchEdit::write_out`] gives an image for e2fsck.

use crate::alloc::AllocatorKind;
use crate::alloc::{Allocator, AllocatorOptions, Budget, Claim, InodeRequest};
use crate::edit::{self, AllocationRequest, BlockRange, Edit, EditInodes, Limits, Purpose, Usage};
use crate::engine::Engine;
use crate::engine::faults::Step;
use crate::engine::shared::Shared;
use crate::write::quota;
use extant_device::Device;
use extant_ondisk::inode::FileType;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, GroupNo, InodeNo, Tid};
use extant_reader::read::group;
use extant_reader::read::inode::LoadedInode;
use extant_reader::{BlockKind, DataPiece, Error, MetadataRead, Reader, VolumeInfo, VolumeRead};
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Changes to a volume, kept in memory. Blocks are given out first fit from the goal on, so that
/// tests see the same places every time; [`ScratchEdit::longest_run`] makes free space look
/// fragmented.
pub struct ScratchEdit {
    volume: Reader,
    changed: BTreeMap<BlockNo, Arc<[u8]>>,
    allocator: Arc<Allocator>,
    /// No run longer than this many clusters is given out.
    pub longest_run: u64,
    /// The time of [`Edit::now`].
    pub time: Timestamp,
    /// All charges, by file.
    charged: BTreeMap<InodeNo, Usage>,
    shared: Arc<Shared>,
}

impl ScratchEdit {
    /// Changes to a volume that was opened for reading.
    pub fn new(volume: Reader) -> Self {
        let (geometry, superblock) = (volume.geometry(), volume.superblock());
        let free_clusters = superblock.free_blocks / u64::from(geometry.blocks_per_cluster);
        let free_inodes = u64::from(superblock.free_inodes);
        let allocator = Arc::new(Allocator::new(
            geometry,
            free_clusters,
            free_inodes,
            AllocatorOptions {
                kind: AllocatorKind::Plain,
                longest_run: u32::MAX,
                stripe: 0,
                kept_clusters: 0,
                map_clusters: 0,
                memory: 1 << 20,
            },
        ));
        // Small times of deletion look like numbers of orphans.
        let time = Timestamp::new(1_700_000_000, 0);
        Self {
            volume,
            changed: BTreeMap::new(),
            allocator,
            longest_run: u64::MAX,
            time,
            charged: BTreeMap::new(),
            shared: Arc::default(),
        }
    }

    /// All charges of a file since the edit began.
    pub fn charged(&self, file: InodeNo) -> Usage {
        self.charged.get(&file).copied().unwrap_or_default()
    }

    /// Inodes free now.
    pub fn free_inodes(&self) -> u32 {
        // At most the volume's inodes.
        self.allocator.free_inodes() as u32
    }

    /// Clusters free now.
    pub fn free_clusters(&self) -> u64 {
        self.allocator.free_clusters()
    }

    /// Writes all changes to `device`, the superblock with the free count as well.
    ///
    /// # Errors
    /// The device failed.
    pub fn write_out(&self, device: &dyn Device) -> Result<(), Error> {
        let geometry = self.volume.geometry();
        for (block, bytes) in &self.changed {
            device.write_at(geometry.byte_of(*block), bytes)?;
        }
        let mut raw = edit::superblock(self)?;
        let mut superblock = Superblock::decode(&raw);
        superblock.free_blocks = self.free_clusters() * u64::from(geometry.blocks_per_cluster);
        superblock.free_inodes = self.free_inodes();
        superblock.encode_into(&mut raw);
        raw.seal();
        device.write_at(SUPERBLOCK_OFFSET, raw.as_bytes())?;
        Ok(device.flush()?)
    }
}

impl MetadataRead for ScratchEdit {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        self.volume.info()
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        match self.changed.get(&block) {
            Some(bytes) => {
                kind.check(bytes, block, self.volume.geometry())?;
                Ok(bytes.clone())
            }
            None => self.volume.metadata(block, kind),
        }
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        self.volume.data(pieces)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        Ok(group::descriptor(self, group)?.inode_table)
    }

    fn descriptor_block(&self, index: u32) -> BlockNo {
        self.volume.descriptor_block(index)
    }
}

impl Edit for ScratchEdit {
    fn modify<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let mut bytes = self.metadata(block, kind)?.to_vec();
        let result = change(&mut bytes);
        edit::seal(&kind, &mut bytes, block, self.volume.geometry());
        self.changed.insert(block, bytes.into());
        Ok(result)
    }

    fn create<R>(
        &mut self,
        block: BlockNo,
        kind: BlockKind,
        fill: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, Error> {
        let mut bytes = vec![0; self.volume.geometry().block_len()];
        let result = fill(&mut bytes);
        edit::seal(&kind, &mut bytes, block, self.volume.geometry());
        self.changed.insert(block, bytes.into());
        Ok(result)
    }

    fn allocate(&mut self, request: AllocationRequest) -> Result<BlockRange, Error> {
        let per_cluster = u64::from(self.volume.geometry().blocks_per_cluster);
        let most = self.longest_run.saturating_mul(per_cluster);
        let request = AllocationRequest { count: request.count.min(most), ..request };
        self.allocator.clone().allocate(self, request, Budget::Free { is_privileged: true })
    }

    fn free_all(&mut self, runs: &[(BlockRange, Purpose)]) -> Result<(), Error> {
        let allocator = self.allocator.clone();
        allocator.free(self, Tid(0), runs.iter().map(|(run, _)| *run))?;
        allocator.committed(Tid(0), |_| ());
        for (run, _) in runs.iter().filter(|(_, purpose)| *purpose != Purpose::Data) {
            for block in run.start.0..run.start.0 + run.count {
                self.changed.remove(&BlockNo(block));
            }
        }
        Ok(())
    }

    fn now(&self) -> Timestamp {
        self.time
    }

    fn with_shared_blocks<R>(
        &mut self,
        hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<BlockNo>) -> R,
    ) -> R {
        self.shared.clone().with_blocks(hash, |blocks| act(self, blocks))
    }

    fn with_shared_values<R>(
        &mut self,
        hash: u32,
        act: impl FnOnce(&mut Self, &mut Vec<InodeNo>) -> R,
    ) -> R {
        self.shared.clone().with_values(hash, |values| act(self, values))
    }

    fn charge(&mut self, file: &LoadedInode, usage: Usage, limits: Limits) -> Result<(), Error> {
        quota::charge(self, file, usage, limits)?;
        let charged = self.charged.entry(file.number).or_default();
        charged.space += usage.space;
        charged.inodes += usage.inodes;
        Ok(())
    }
}

impl EditInodes for ScratchEdit {
    fn allocate_inode(&mut self, near: InodeNo, file_type: FileType) -> Result<InodeNo, Error> {
        let is_dir = file_type == FileType::Directory;
        let request = InodeRequest { parent: near, is_dir, is_top: false };
        self.allocator.clone().allocate_inode(self, request)
    }

    fn free_inode(&mut self, number: InodeNo, file_type: FileType) -> Result<(), Error> {
        let is_dir = file_type == FileType::Directory;
        self.allocator.clone().free_inode(self, number, is_dir)
    }
}

/// Free clusters claimed but not taken: for measurements of the search alone. Dropped, they are
/// free again.
#[derive(Debug)]
pub struct ClaimedRun(Claim);

impl ClaimedRun {
    /// The blocks.
    pub fn run(&self) -> BlockRange {
        self.0.run()
    }
}

impl Engine {
    /// Lets `passes` steps pass, of one kind or all, and the next `times` fail.
    pub fn fail_steps(&self, only: Option<Step>, passes: u64, times: u64) {
        self.faults.set(only, passes, times);
    }

    /// Lets all steps pass again. How many have failed.
    pub fn steps_failed(&self) -> u64 {
        self.faults.take()
    }
}

/// Bytes that a volume's buddies take.
pub fn buddy_bytes(engine: &Engine) -> u64 {
    engine.allocator.buddy_bytes()
}

/// Lets a volume's allocator find blocks.
///
/// # Errors
/// [`Error::NoSpace`], or corruption.
pub fn find(engine: &Engine, request: AllocationRequest) -> Result<ClaimedRun, Error> {
    let budget = Budget::Free { is_privileged: true };
    engine.allocator.claim(engine, request, budget).map(ClaimedRun)
}
