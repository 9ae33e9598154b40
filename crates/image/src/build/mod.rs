//! `extant build`: an image from a tree, planned whole before the first byte is written.
//!
//! The plan knows every size in advance. Inodes are numbered so that a directory's files lie
//! together; directories, packed full, come first in the free space, then file data in the order of
//! the sources, each file in one extent where the groups' metadata leave room for it. The smallest
//! volume in which all this fits is found by trying sizes, which costs no more than counting. Then
//! file data are streamed by several threads and each block of metadata is written once. See
//! `docs/src/guide/build-choices.md` for what is chosen and why.

mod as_mke2fs;
mod attributes;
mod error;
mod identity;
mod numbers;
mod options;
mod output;
mod placement;
mod plan;
mod records;
mod requirements;
mod space;
mod write;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_device::{Device, DeviceError};
use extant_ondisk::inode::GOOD_OLD_INODE_SIZE;
use extant_ondisk::time::Timestamp;
use extant_ondisk::{BlockNo, Uuid};

pub use as_mke2fs::mke2fs;
pub use error::{BuildError, Limit};
pub use options::{BuildOptions, Room, Size};

use crate::mkfs::{DeviceInfo, WriteRules};
use crate::source::{Node, NodeKind, Tree};
use output::Output;
use plan::Plan;

/// Default number of threads: while one waits for the disk another reads.
const LEAST_THREADS: usize = 8;

/// The built image.
#[derive(Clone, Debug)]
pub struct Report {
    /// Bytes of the volume.
    pub bytes: u64,
    /// Bytes a block.
    pub block_size: u32,
    /// Blocks of the volume.
    pub blocks: u64,
    /// Blocks that are free.
    pub free_blocks: u64,
    /// Inodes of the volume.
    pub inodes: u32,
    /// Inodes that are free.
    pub free_inodes: u32,
    /// Blocks of the journal; `None` without one.
    pub journal_blocks: Option<u32>,
    /// Directories of the tree.
    pub directories: u64,
    /// Other nodes of the tree.
    pub files: u64,
    /// Bytes of regular files.
    pub content_bytes: u64,
    /// The volume's UUID.
    pub uuid: Uuid,
    /// The features, as dumpe2fs lists them.
    pub features: Vec<String>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// Bytes written so far, and all there are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Written.
    pub done: u64,
    /// To be written.
    pub total: u64,
}

/// Builds the image of a tree.
///
/// # Errors
/// See [`BuildError`]. No image is left then; a block device may hold a part of one, without a
/// superblock.
pub fn build(
    options: &BuildOptions,
    tree: &Tree,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<Report, BuildError> {
    let wait = options.format.wait.unwrap_or_default();
    let kind = match &options.device {
        Some(device) => output::OutputKind::There(device.clone()),
        None => output::kind(&options.output, &options.schemes, wait)?,
    };
    let device_size = match &kind {
        output::OutputKind::There(opened) => Some(opened.device.size()),
        output::OutputKind::Missing(_) | output::OutputKind::File => None,
    };
    if let (Size::Given(wanted), Some(room)) = (&options.size, device_size)
        && *wanted > room
    {
        let wanted = *wanted;
        return Err(BuildError::LargerThanDevice { path: options.output.clone(), wanted, room });
    }
    let info = DeviceInfo { size: device_size, logical_sector: 512, ..DeviceInfo::default() };
    let mut plan = Plan::new(options, tree, info)?;
    if let Some(size) = device_size.filter(|size| *size < plan.bytes()) {
        let block_size = plan.volume.geometry.block_size;
        return Err(BuildError::NoSpace {
            needed: plan.volume.geometry.blocks_count,
            room: size / u64::from(block_size),
            block_size,
        });
    }
    let is_hole = matches!(kind, output::OutputKind::File);
    let output = Output::new(&options.output, plan.bytes(), kind, wait)?;
    reserve(&plan, &output)?;
    // A new file is one hole.
    let rules = WriteRules {
        discard: plan.volume.params.discard,
        prezeroed: is_hole,
        one_thread: output.is_simulated(),
        ..WriteRules::default()
    };
    let to = Destination { path: &options.output, device: output.device(), rules };
    write(&mut plan, &to, options.threads, progress)?;
    let report = report(&plan);
    output.finish()?;
    Ok(report)
}

/// Allocates the space of the tree in a new file.
fn reserve(plan: &Plan<'_>, output: &Output) -> Result<(), BuildError> {
    let cluster_size = plan.requirements.shape.cluster_size();
    for piece in plan.space.pieces(0..plan.placement.end) {
        let end = (piece.block * plan.requirements.shape.block_size + piece.len * cluster_size)
            .min(plan.bytes());
        let start = plan.volume.geometry.byte_of(BlockNo(piece.block));
        output.reserve(start, end - start)?;
    }
    Ok(())
}

/// The device that an image is written to: it begins with the volume.
struct Destination<'a> {
    /// For messages.
    path: &'a Path,
    device: &'a dyn Device,
    rules: WriteRules,
}

fn write(
    plan: &mut Plan<'_>,
    to: &Destination<'_>,
    threads: Option<usize>,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<(), BuildError> {
    let path = to.path.to_owned();
    let failed = move |source: DeviceError| BuildError::Write { path: path.clone(), source };
    let Destination { device, rules, .. } = *to;
    let zeroed = plan.volume.clear(device, rules).map_err(&failed)?;
    let total = plan.bytes_to_write();
    let done = AtomicU64::new(0);
    let threads = match rules.one_thread {
        true => 1,
        false => threads.unwrap_or_else(|| {
            std::thread::available_parallelism()
                .map_or(LEAST_THREADS, |count| count.get().max(LEAST_THREADS))
        }),
    };
    write::write_tree(plan, device, threads, &failed, &|bytes| {
        let done = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        progress(Progress { done, total });
    })?;
    // They were written with their tables.
    plan.volume.records.clear();
    plan.volume.write_metadata(device, rules, zeroed).map_err(&failed)
}

/// Warnings about files that are not in the image as they are in the sources.
fn tree_warnings(plan: &Plan<'_>) -> Vec<String> {
    let (volume, tree) = (&plan.volume, plan.requirements.tree);
    let mut warnings = tree.warnings().to_vec();
    for (name, count) in tree.ignored_xattrs() {
        let name = crate::source::EntryName::from(name);
        warnings.push(format!(
            "extended attribute {name} of {count} files left out: ext4 has no place for it"
        ));
    }
    let has_extra = volume.geometry.inode_size > GOOD_OLD_INODE_SIZE;
    let is_clamped = |node: &Node| {
        let time = Timestamp::new(node.mtime().seconds, node.mtime().nanoseconds);
        time.clamped(has_extra).seconds != time.seconds
    };
    let clamped = tree.nodes().filter(|(_, node)| is_clamped(node)).count();
    if clamped > 0 {
        let last = if has_extra { 2446 } else { 2038 };
        warnings.push(format!(
            "times of {clamped} files lie outside of 1901 to {last}, which is what inodes of {} bytes hold: the nearest was taken",
            volume.geometry.inode_size
        ));
    }
    warnings
}

fn report(plan: &Plan<'_>) -> Report {
    let volume = &plan.volume;
    let tree = plan.requirements.tree;
    let directories = plan.requirements.dirs.len() as u64;
    let mut warnings = volume.params.warnings.clone();
    warnings.extend(tree_warnings(plan));
    Report {
        bytes: plan.bytes(),
        block_size: volume.geometry.block_size,
        blocks: volume.geometry.blocks_count,
        free_blocks: volume.free_blocks(),
        inodes: volume.geometry.inodes_count,
        free_inodes: volume.free_inodes() as u32, // at most all of them
        journal_blocks: volume.params.journal.map(|journal| journal.blocks),
        directories,
        files: tree.node_count() as u64 - directories,
        content_bytes: tree
            .nodes()
            .filter(|(_, node)| node.kind() == NodeKind::Regular)
            .map(|(_, node)| node.size())
            .sum(),
        uuid: volume.identity.uuid,
        features: volume.geometry.features.names(),
        warnings,
    }
}
