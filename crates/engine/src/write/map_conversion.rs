//! A file's map changed into the other form (flag e of chattr), where that is simple: all runs find
//! room in the inode.

use super::{extents, indirect, space};
use crate::edit::Edit;
use extant_ondisk::extent::{Extent, OwnedNode};
use extant_ondisk::indirect::{DIRECT_BLOCKS, IndirectMap, MAX_LEVELS, set_pointer};
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};
use extant_ondisk::{BlockNo, FileBlock, IncompatFeatures, MAX_FILE_BLOCKS};
use extant_reader::read::inode::LoadedInode;
use extant_reader::read::mapping::{MappingTarget, extents as runs_of};
use extant_reader::{Error, MetadataRead};

/// Extents that the inode has room for.
const IN_INODE: usize = 4;

/// A map that can be changed, and its runs.
#[derive(Debug)]
pub struct Plan {
    runs: Vec<Extent>,
    map_blocks: u32,
}

impl Plan {
    /// Blocks of the old map that are given back, at most.
    pub fn map_blocks(&self) -> u32 {
        self.map_blocks
    }
}

/// How a file's map can be changed into the other form; `None` where the inode has no room for it,
/// or the volume has no such maps.
///
/// # Errors
/// A broken map, or the device failed.
pub fn plan<S: MetadataRead>(source: &S, file: &LoadedInode) -> Result<Option<Plan>, Error> {
    let geometry = source.geometry();
    let is_extent_mapped = file.is_extent_mapped();
    let is_known = match is_extent_mapped {
        // Pointers do not support clusters, and blocks in nodes of the tree are more than a few
        // runs.
        true => geometry.blocks_per_cluster == 1 && depth(file) == 0,
        false => geometry.has_incompat(IncompatFeatures::EXTENTS),
    };
    if !is_known {
        return Ok(None);
    }
    let per_block = IndirectMap::new(geometry.block_size).pointers_per_block();
    let (mut runs, mut map_blocks) = (Vec::new(), 0_u64);
    for run in runs_of(source, file.clone(), FileBlock(0), FileBlock(MAX_FILE_BLOCKS)) {
        let run = run?;
        let start = match run.target {
            MappingTarget::Hole => continue,
            MappingTarget::Unwritten(_) => return Ok(None),
            MappingTarget::Written(start) => start,
        };
        let fits = match is_extent_mapped {
            true => run.end().0 <= DIRECT_BLOCKS && start.0 + run.len <= u64::from(u32::MAX),
            false => run.len <= u64::from(Extent::max_len(false)),
        };
        if !fits || runs.len() == IN_INODE {
            return Ok(None);
        }
        map_blocks += run.len / per_block + 2 * MAX_LEVELS as u64;
        // An extent's longest run at most.
        runs.push(Extent { block: run.block, len: run.len as u32, start, is_unwritten: false });
    }
    let map_blocks = if is_extent_mapped { 0 } else { map_blocks };
    Ok(u32::try_from(map_blocks).ok().map(|map_blocks| Plan { runs, map_blocks }))
}

/// The root's depth.
fn depth(file: &LoadedInode) -> u16 {
    u16::from_le_bytes([file.i_block[6], file.i_block[7]])
}

/// Changes a map as it was planned. The caller writes the inode afterwards, in the same operation.
///
/// # Errors
/// The change failed.
pub fn apply<E: Edit>(edit: &mut E, file: &mut LoadedInode, plan: Plan) -> Result<(), Error> {
    if file.is_extent_mapped() {
        file.inode.flags.remove(InodeFlags::EXTENTS);
        file.inode.i_block = [0; I_BLOCK_SIZE];
        for run in plan.runs {
            for index in 0..u64::from(run.len) {
                let slot = (run.block.0 + index) as usize; // below 12
                set_pointer(&mut file.inode.i_block, slot, BlockNo(run.start.0 + index));
            }
        }
        return Ok(());
    }
    // The blocks of pointers go; what they point to stays where it is.
    let (mut next, mut freed) = (Some(FileBlock(0)), 0);
    while let Some(from) = next {
        let range = from..FileBlock(MAX_FILE_BLOCKS);
        let removed = indirect::remove_step(edit, file, range, usize::MAX)?;
        removed.free_map(edit)?;
        (next, freed) = (removed.next, freed + removed.map_freed);
    }
    file.inode.flags.insert(InodeFlags::EXTENTS);
    OwnedNode::empty_leaf(I_BLOCK_SIZE).encode_into(&mut file.inode.i_block);
    for run in plan.runs {
        let grown = extents::insert(edit, file, run)?;
        debug_assert_eq!(grown, 0, "the inode has room for the runs");
    }
    space::settle(edit, file, 0, freed)
}
