//! Streaming: file data, directories and inode tables, assembled in windows of memory by several
//! threads and written once each in large aligned requests.
//!
//! Which thread writes a window does not matter: what is in it follows from the plan alone.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use extant_device::{AlignedBuffer, Device, DeviceError};
use extant_layout::pack::DirItem;
use extant_ondisk::xattr::{encode_block, seal_block};
use extant_ondisk::{BlockNo, GroupNo, InodeNo};

use super::error::BuildError;
use super::placement::{Mapping, dir_ranges, ea_ranges};
use super::plan::Plan;
use super::records::Recorder;
use super::space::ClusterRun;
use crate::source::{NodeId, SourcePrefetch};

/// Bytes of a window of file data, and the multiple that windows are cut at.
const WINDOW: u64 = 4 << 20;
/// Directories and small blocks are put into windows of about this many bytes.
const SMALL_WINDOW: u64 = 1 << 20;
/// Windows start at a multiple of this in memory.
const ALIGNMENT: usize = 4096;

/// One window's work.
#[derive(Clone, Debug)]
enum Job {
    /// Clusters of file data that lie in one run.
    Data(Range<u64>),
    /// Directories, by their index.
    Dirs(Range<usize>),
    /// Blocks of symbolic links, by their index.
    Symlinks(Range<usize>),
    /// Blocks of attributes, by their index.
    Attributes(Range<usize>),
    /// A value with an inode of its own.
    EaFile(usize),
    /// The inode table of a group.
    Table(GroupNo),
}

/// Errors of a write.
pub(super) type WriteFailure = dyn Fn(DeviceError) -> BuildError + Sync;

/// Writes everything of the tree. `done` is called with the number of bytes as they are written.
pub(super) fn write_tree(
    plan: &Plan<'_>,
    device: &dyn Device,
    threads: usize,
    failed: &WriteFailure,
    done: &(dyn Fn(u64) + Sync),
) -> Result<(), BuildError> {
    let jobs = jobs(plan);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let first_error: Mutex<Option<(usize, BuildError)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        let work = || {
            let mut worker = Worker::new(plan, device, failed, done);
            while !stop.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = jobs.get(index) else { break };
                if let Err(error) = worker.run(job) {
                    stop.store(true, Ordering::Relaxed);
                    let mut first = first_error.lock().unwrap_or_else(PoisonError::into_inner);
                    if first.as_ref().is_none_or(|(earlier, _)| index < *earlier) {
                        *first = Some((index, error));
                    }
                }
            }
        };
        for _ in 1..threads.min(jobs.len()).max(1) {
            scope.spawn(work);
        }
        work();
    });
    match first_error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, error)) => Err(error),
        None => Ok(()),
    }
}

/// All windows in the order of the device, except the inode tables, which are last.
fn jobs(plan: &Plan<'_>) -> Vec<Job> {
    let shape = &plan.requirements.shape;
    let (placement, space) = (&plan.placement, &plan.space);
    let mut jobs = Vec::new();
    let mut first = 0;
    for (index, start) in placement.dirs.iter().enumerate() {
        if (start - placement.dirs[first]) * shape.cluster_size() >= SMALL_WINDOW {
            jobs.push(Job::Dirs(first..index));
            first = index;
        }
    }
    jobs.push(Job::Dirs(first..placement.dirs.len()));
    let step = (SMALL_WINDOW / shape.cluster_size()).max(1) as usize;
    let parts = |len: usize| (0..len).step_by(step).map(move |at| at..len.min(at + step));
    jobs.extend(parts(plan.requirements.symlinks.len()).map(Job::Symlinks));
    jobs.extend(parts(plan.requirements.attributes.blocks.len()).map(Job::Attributes));
    jobs.extend((0..plan.requirements.attributes.ea_files.len()).map(Job::EaFile));
    let window_blocks = WINDOW / shape.block_size;
    for piece in space.pieces(placement.data..placement.end) {
        let (mut at, mut block) = (piece.first, piece.block);
        let end = piece.first + piece.len;
        while at < end {
            let room = window_blocks - block % window_blocks;
            let len = (room / shape.cluster_blocks).max(1).min(end - at);
            jobs.push(Job::Data(at..at + len));
            (at, block) = (at + len, block + len * shape.cluster_blocks);
        }
    }
    let groups = (0..plan.volume.geometry.groups_count).map(GroupNo);
    jobs.extend(groups.filter(|group| plan.table_end(*group) > 0).map(Job::Table));
    jobs
}

/// A range of free clusters in memory.
struct Window<'b> {
    first: u64,
    cluster_blocks: u64,
    block_size: u64,
    pieces: Vec<ClusterRun>,
    bytes: &'b mut [u8],
}

impl Window<'_> {
    /// The bytes of some of its clusters.
    fn clusters(&mut self, clusters: Range<u64>) -> &mut [u8] {
        let byte = |cluster: u64| {
            ((cluster - self.first) * self.cluster_blocks * self.block_size) as usize
        };
        let (start, end) = (byte(clusters.start), byte(clusters.end));
        &mut self.bytes[start..end]
    }

    /// The bytes of a block that lies in it.
    fn block(&mut self, block: BlockNo) -> Option<&mut [u8]> {
        let blocks =
            |piece: &ClusterRun| piece.block..piece.block + piece.len * self.cluster_blocks;
        let piece = self.pieces.iter().find(|piece| blocks(piece).contains(&block.0))?;
        let at = (piece.first - self.first) * self.cluster_blocks + (block.0 - piece.block);
        let at = (at * self.block_size) as usize;
        Some(&mut self.bytes[at..at + self.block_size as usize])
    }

    /// Puts the blocks of a file's map into it, as far as they lie here.
    fn put_map(&mut self, mapping: &Mapping<'_>, inode: InodeNo, plan: &Plan<'_>) {
        if mapping.map_clusters == 0 {
            return;
        }
        mapping.write_map(inode, &plan.volume.geometry, |block, bytes| {
            if let Some(place) = self.block(block) {
                place.copy_from_slice(bytes);
            }
        });
    }
}

struct Worker<'a, 'p> {
    plan: &'p Plan<'p>,
    device: &'a dyn Device,
    failed: &'a WriteFailure,
    done: &'a (dyn Fn(u64) + Sync),
    recorder: Recorder<'p>,
    items: Vec<DirItem<'p>>,
    /// The file of the last window.
    last_file: Option<(NodeId, Mapping<'p>)>,
    buffer: AlignedBuffer,
    ahead: SourcePrefetch,
}

impl<'a, 'p> Worker<'a, 'p> {
    fn new(
        plan: &'p Plan<'p>,
        device: &'a dyn Device,
        failed: &'a WriteFailure,
        done: &'a (dyn Fn(u64) + Sync),
    ) -> Self {
        let buffer = AlignedBuffer::new(0, ALIGNMENT);
        let recorder = Recorder::new(plan);
        Self {
            plan,
            device,
            failed,
            done,
            recorder,
            items: Vec::new(),
            last_file: None,
            buffer,
            ahead: SourcePrefetch::default(),
        }
    }

    fn run(&mut self, job: &Job) -> Result<(), BuildError> {
        let placement = &self.plan.placement;
        match job.clone() {
            Job::Data(clusters) => self.window(clusters, Self::fill_data),
            Job::Dirs(dirs) => {
                let start =
                    |index: usize| placement.dirs.get(index).copied().unwrap_or(placement.symlinks);
                let clusters = start(dirs.start)..start(dirs.end);
                self.window(clusters, |worker, window| worker.fill_dirs(dirs.clone(), window))
            }
            Job::Symlinks(links) => {
                let at = |index: usize| placement.symlinks + index as u64;
                let clusters = at(links.start)..at(links.end);
                self.window(clusters, |worker, window| worker.fill_symlinks(links.clone(), window))
            }
            Job::Attributes(blocks) => {
                let at = |index: usize| placement.attributes + index as u64;
                let clusters = at(blocks.start)..at(blocks.end);
                self.window(clusters, |worker, window| {
                    worker.fill_attributes(blocks.clone(), window)
                })
            }
            Job::EaFile(index) => {
                let end = placement.ea_files.get(index + 1).copied().unwrap_or(placement.data);
                let clusters = placement.ea_files[index]..end;
                self.window(clusters, |worker, window| worker.fill_ea_file(index, window))
            }
            Job::Table(group) => self.table(group),
        }
    }

    /// Fills a window and writes it, piece by piece where metadata cut it.
    fn window(
        &mut self,
        clusters: Range<u64>,
        fill: impl Fn(&mut Self, &mut Window<'_>) -> Result<(), BuildError>,
    ) -> Result<(), BuildError> {
        if clusters.is_empty() {
            return Ok(());
        }
        let shape = &self.plan.requirements.shape;
        let len = ((clusters.end - clusters.start) * shape.cluster_size()) as usize;
        let mut buffer = std::mem::replace(&mut self.buffer, AlignedBuffer::new(0, ALIGNMENT));
        if buffer.len() < len {
            buffer = AlignedBuffer::new(len, ALIGNMENT);
        } else {
            buffer[..len].fill(0);
        }
        let mut window = Window {
            first: clusters.start,
            cluster_blocks: shape.cluster_blocks,
            block_size: shape.block_size,
            pieces: self.plan.space.pieces(clusters).collect(),
            bytes: &mut buffer[..len],
        };
        fill(self, &mut window)?;
        let volume_end = self.plan.volume.geometry.blocks_count;
        for piece in &window.pieces {
            let blocks = (piece.len * shape.cluster_blocks).min(volume_end - piece.block);
            let at = ((piece.first - window.first) * shape.cluster_size()) as usize;
            let bytes = &window.bytes[at..at + (blocks * shape.block_size) as usize];
            let offset = self.plan.volume.geometry.byte_of(BlockNo(piece.block));
            self.device.write_at(offset, bytes).map_err(self.failed)?;
            (self.done)(bytes.len() as u64);
        }
        if len as u64 <= WINDOW {
            self.buffer = buffer;
        }
        Ok(())
    }

    fn fill_data(&mut self, window: &mut Window<'_>) -> Result<(), BuildError> {
        let plan = self.plan;
        let requirements = &plan.requirements;
        let clusters = window.pieces.first().map_or(0..0, |first| {
            let last = window.pieces.last().unwrap_or(first);
            first.first..last.first + last.len
        });
        let starts = &plan.placement.files;
        let first = starts.partition_point(|start| *start <= clusters.start).saturating_sub(1);
        let overlapping = starts[first..].iter().take_while(|start| **start < clusters.end).count();
        for &id in &requirements.files[first..first + overlapping] {
            // A file of many windows has its ranges counted once by each worker.
            let known = self.last_file.take().filter(|(known, _)| *known == id);
            let Some(known) = known.or_else(|| Some((id, plan.file(id)?))) else { continue };
            let mapping = &self.last_file.insert(known).1;
            let size = requirements.tree.node(id).size();
            let mut content = None;
            for (block, part) in mapping.within(clusters.clone()) {
                let content = match &content {
                    Some(content) => content,
                    None => content.insert(requirements.tree.open(id)?),
                };
                let offset = block.0 * requirements.shape.block_size;
                let bytes = window.clusters(part);
                let len = (bytes.len() as u64).min(size - offset) as usize;
                content.read_with(&mut self.ahead, &mut bytes[..len], offset)?;
            }
            if let Some(content) = &content {
                content.check_unchanged()?;
            }
            let map = mapping.map();
            if map.start < clusters.end && map.end > clusters.start {
                window.put_map(mapping, requirements.numbers.of(id), plan);
            }
        }
        Ok(())
    }

    fn fill_dirs(&mut self, dirs: Range<usize>, window: &mut Window<'_>) -> Result<(), BuildError> {
        let plan = self.plan;
        let requirements = &plan.requirements;
        for index in dirs {
            let dir = &requirements.dirs[index];
            if dir.inline.is_some() {
                continue;
            }
            let number = requirements.numbers.of(dir.node);
            requirements.items(dir.node, &mut self.items);
            // Puts the names into their order; the plan itself is known.
            let plan_again = requirements.packer.plan(&mut self.items);
            debug_assert_eq!(plan_again, Ok(dir.plan));
            let start = plan.placement.dirs[index];
            let mapping = Mapping::new(&requirements.shape, &plan.space, start, dir_ranges(dir));
            let len = dir.plan.blocks() as usize * plan.volume.geometry.block_len();
            let bytes = &mut window.clusters(mapping.data())[..len];
            let seed = plan.seed_of(number);
            requirements.packer.write(&dir.plan, number, dir.parent, seed, &self.items, bytes);
            window.put_map(&mapping, number, plan);
        }
        Ok(())
    }

    fn fill_symlinks(
        &mut self,
        links: Range<usize>,
        window: &mut Window<'_>,
    ) -> Result<(), BuildError> {
        let requirements = &self.plan.requirements;
        for index in links {
            let cluster = self.plan.placement.symlinks + index as u64;
            let target = requirements.tree.symlink_target(requirements.symlinks[index]);
            window.clusters(cluster..cluster + 1)[..target.len()].copy_from_slice(target);
        }
        Ok(())
    }

    fn fill_attributes(
        &mut self,
        blocks: Range<usize>,
        window: &mut Window<'_>,
    ) -> Result<(), BuildError> {
        let plan = self.plan;
        for index in blocks {
            let (set, sharing) = plan.requirements.attributes.blocks[index];
            let cluster = plan.placement.attributes + index as u64;
            let bytes =
                &mut window.clusters(cluster..cluster + 1)[..plan.volume.geometry.block_len()];
            encode_block(&plan.divided(set)?.in_block, sharing, bytes)
                .expect("the demand found that the attributes fit");
            seal_block(bytes, BlockNo(plan.space.block(cluster)), &plan.volume.geometry);
        }
        Ok(())
    }

    fn fill_ea_file(&mut self, index: usize, window: &mut Window<'_>) -> Result<(), BuildError> {
        let plan = self.plan;
        let requirements = &plan.requirements;
        let file = &requirements.attributes.ea_files[index];
        let value = requirements.attributes.ea_value(requirements.tree, file)?;
        let start = plan.placement.ea_files[index];
        let ranges = ea_ranges(&requirements.shape, file.size);
        let mapping = Mapping::new(&requirements.shape, &plan.space, start, ranges);
        window.clusters(mapping.data())[..value.len()].copy_from_slice(&value);
        window.put_map(&mapping, requirements.ea_inode(index), plan);
        Ok(())
    }

    /// Writes a group's table up to its last record.
    fn table(&mut self, group: GroupNo) -> Result<(), BuildError> {
        let plan = self.plan;
        let geometry = &plan.volume.geometry;
        let size = usize::from(geometry.inode_size);
        let first = group.0 * geometry.inodes_per_group + 1;
        let count = plan.table_end(group);
        let len = (count as usize * size).next_multiple_of(geometry.block_len());
        let mut bytes = AlignedBuffer::new(len, ALIGNMENT);
        let inodes = first..first + count;
        for (number, known) in plan.volume.records.range(inodes.clone()) {
            let at = (number - first) as usize * size;
            bytes[at..at + size].copy_from_slice(known);
        }
        let root = Some((InodeNo::ROOT, NodeId::ROOT));
        let lost_found = plan.requirements.lost_found.map(|node| (InodeNo::FIRST_ORDINARY, node));
        let special = [root, lost_found].into_iter().flatten();
        let special = special.filter(|(number, _)| inodes.contains(&number.0));
        for (number, node) in special.chain(plan.requirements.numbers.nodes(inodes.clone())) {
            let at = (number.0 - first) as usize * size;
            self.recorder.node(number, node, &mut bytes[at..at + size])?;
        }
        for index in 0..plan.requirements.attributes.ea_files.len() {
            let number = plan.requirements.ea_inode(index).0;
            if inodes.contains(&number) {
                let at = (number - first) as usize * size;
                self.recorder.ea_file(index, &mut bytes[at..at + size])?;
            }
        }
        let Some(tables) = plan.volume.tables.get(group.0 as usize) else { return Ok(()) };
        let offset = geometry.byte_of(tables.inode_table);
        self.device.write_at(offset, &bytes).map_err(self.failed)?;
        (self.done)(len as u64);
        Ok(())
    }
}
