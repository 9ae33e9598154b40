//! Single records of inode tables that are in each other's places: the checksum of each says which
//! inode it is. As with whole blocks, only whole cycles are undone.

use crate::finding::{Code, Finding};
use crate::recorder::Recorder;
use crate::store::{CheckError, Store};
use extant_ondisk::inode;
use extant_ondisk::{BlockNo, InodeNo};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// A record that lies in the place of another inode's.
struct MisplacedRecord {
    place: InodeNo,
    owner: InodeNo,
    bytes: Vec<u8>,
}

/// Blocks with their new contents.
pub(super) type NewBlocks = Vec<(BlockNo, Vec<u8>)>;

/// Proposes to put records where they belong; the blocks with the records of each accepted cycle.
/// `suspects` have wrong checksums. Records in `moved` blocks are left alone.
///
/// # Errors
/// The device failed, or the policy ended the run.
pub(super) fn accepted(
    store: &Store,
    recorder: &Recorder<'_>,
    suspects: BTreeSet<InodeNo>,
    moved: &HashSet<BlockNo>,
) -> Result<Vec<NewBlocks>, CheckError> {
    let mut accepted = Vec::new();
    for cycle in cycles(store, suspects)? {
        let blocks: Option<Vec<BlockNo>> =
            cycle.iter().map(|it| Some(place_of(store, it.place)?.0)).collect();
        if blocks.is_none_or(|blocks| blocks.iter().any(|block| moved.contains(block))) {
            continue;
        }
        let mut all = true;
        for record in &cycle {
            let finding = Finding::new(Code::InodeMisplaced).inode(record.place);
            let is_accepted = recorder.should_fix(finding.expected(u64::from(record.owner.0)))?;
            all &= is_accepted;
            if !is_accepted && recorder.may_repair() {
                break;
            }
        }
        if all {
            accepted.push(blocks_with(store, cycle)?);
        }
    }
    Ok(accepted)
}

/// Cycles of records, each in the place of the next one.
fn cycles(
    store: &Store,
    suspects: BTreeSet<InodeNo>,
) -> Result<Vec<Vec<MisplacedRecord>>, CheckError> {
    let (mut is_met, mut cycles) = (HashSet::new(), Vec::new());
    for start in suspects {
        let mut chain: Vec<MisplacedRecord> = Vec::new();
        let mut place = start;
        while is_met.insert(place) {
            let Some(bytes) = store.read_inode(place)? else { break };
            let owner = inode::number_of(&bytes, place, store.geometry());
            let Some(owner) = owner.filter(|owner| *owner != place) else { break };
            chain.push(MisplacedRecord { place, owner, bytes });
            place = owner;
        }
        // A chain may lead into a cycle: what precedes the cycle is a copy.
        if let Some(first) = chain.iter().position(|it| it.place == place) {
            cycles.push(chain.split_off(first));
        }
    }
    Ok(cycles)
}

/// The block that has the record of an inode, and where in it.
fn place_of(store: &Store, inode: InodeNo) -> Option<(BlockNo, usize)> {
    let (offset, len) = (store.inode_offset(inode)?, u64::from(store.geometry().block_size));
    Some((BlockNo(offset / len), (offset % len) as usize))
}

/// The blocks of a cycle, with the records where they belong.
fn blocks_with(store: &Store, cycle: Vec<MisplacedRecord>) -> Result<NewBlocks, CheckError> {
    let mut blocks = BTreeMap::new();
    for record in cycle {
        let Some((block, at)) = place_of(store, record.owner) else { continue };
        let bytes = match blocks.entry(block) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(store.read(block)?),
        };
        bytes[at..at + record.bytes.len()].copy_from_slice(&record.bytes);
    }
    Ok(blocks.into_iter().collect())
}
