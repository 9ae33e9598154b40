//! A directory packed again: with or without an index, with or without room for checksums.

use std::collections::BTreeSet;

use extant_layout::pack::{DirItem, DirectoryPacker};
use extant_offline::{FileMap, MapError, OfflineError, OfflineVolume};
use extant_ondisk::casefold::Casefold;
use extant_ondisk::dirent::{DirFormat, FileType, dot_entries};
use extant_ondisk::dx_hash::{DirHash, DirHasher, HashVersion};
use extant_ondisk::extent::Extent;
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::superblock::Superblock;
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, Geometry, IncompatFeatures, InodeNo, RoCompatFeatures,
};

use super::error::{TuneError, Unsupported, Work};

struct Name {
    bytes: Vec<u8>,
    inode: InodeNo,
    file_type: FileType,
    hash: Option<DirHash>,
}

/// Reads a directory as `before` has it and writes it as `volume` wants it, into its blocks, more
/// or fewer. `record` takes the new map, size and flags, and is the caller's to seal and to write.
pub(super) fn directory(
    before: &OfflineVolume,
    volume: &mut OfflineVolume,
    number: InodeNo,
    inode: &mut Inode,
    record: &mut [u8],
) -> Result<(), TuneError> {
    let map = before.read_map(number, inode)?;
    let has_stored_hashes = inode.has_stored_hashes();
    let reader = DirFormat::of_inode(before.geometry(), number, inode);
    let (names, parent) = read_names(before, &map, &reader)?;

    let superblock = Superblock::decode(&volume.raw);
    let geometry = volume.geometry().clone();
    let (version, hasher) = hasher(&superblock)?;
    let casefold = Casefold::of_volume(&superblock).filter(|_| {
        geometry.has_incompat(IncompatFeatures::CASEFOLD)
            && inode.flags.contains(InodeFlags::CASEFOLD)
    });
    let mut items: Vec<DirItem<'_>> = names
        .iter()
        .map(|name| {
            let item = DirItem::new(&name.bytes, name.inode, name.file_type);
            match (name.hash, casefold) {
                (Some(hash), _) => item.with_hash(hash),
                (None, Some(casefold)) => item.with_hash(hasher.hash(&casefold.key(&name.bytes))),
                (None, None) => item,
            }
        })
        .collect();
    let version = if has_stored_hashes { HashVersion::SipHash } else { version };
    let index = geometry.has_compat(CompatFeatures::DIR_INDEX).then_some((version, hasher));
    let packer = DirectoryPacker::new(&geometry, index);
    let packer = if has_stored_hashes { packer.with_stored_hashes() } else { packer };
    let plan = packer.plan(&mut items)?;
    let mut bytes = vec![0; plan.blocks() as usize * geometry.block_len()];
    let seed = geometry
        .has_metadata_csum()
        .then(|| geometry.inode_checksum_seed(number, inode.generation));
    packer.write(&plan, number, parent, seed, &items, &mut bytes);

    resize(volume, number, inode, map, u64::from(plan.blocks()), |volume, map| {
        for ((_, block), bytes) in map.blocks().zip(bytes.chunks_exact(geometry.block_len())) {
            volume.write(block, bytes)?;
        }
        Ok(())
    })?;
    inode.size = u64::from(plan.blocks()) * u64::from(geometry.block_size);
    inode.flags.set(InodeFlags::INDEX, plan.is_indexed);
    inode.encode_into(record, &geometry);
    Ok(())
}

/// Refuses a directory with a damaged block: its names would be lost, or get a valid checksum.
pub(super) fn check(
    before: &OfflineVolume,
    number: InodeNo,
    inode: &Inode,
) -> Result<(), TuneError> {
    let geometry = before.geometry();
    let format = DirFormat::new(geometry, number, inode.generation);
    let index = HtreeFormat::new(geometry, number, inode.generation);
    let is_indexed = inode.flags.contains(InodeFlags::INDEX);
    for (at, block) in before.read_map(number, inode)?.blocks() {
        let bytes = before.read(block)?;
        for entry in format.entries(&bytes, at) {
            entry?;
        }
        if !geometry.has_metadata_csum() {
            continue;
        }
        if !is_indexed || (at.0 != 0 && format.has_tail(&bytes)) {
            format.verify(&bytes, at)?;
        } else {
            let kind = if at.0 == 0 { IndexKind::Root } else { IndexKind::Node };
            index.verify(&bytes, at, kind)?;
        }
    }
    Ok(())
}

fn read_names(
    before: &OfflineVolume,
    map: &FileMap,
    format: &DirFormat,
) -> Result<(Vec<Name>, InodeNo), TuneError> {
    let (mut names, mut parent) = (Vec::new(), InodeNo::ROOT);
    for (at, block) in map.blocks() {
        let bytes = before.read(block)?;
        if at.0 == 0 {
            parent = dot_entries(format, &bytes)?.1;
        }
        for entry in format.entries(&bytes, at) {
            let entry = entry?;
            let Some(inode) = entry.inode.filter(|_| !entry.is_dot()) else { continue };
            names.push(Name {
                bytes: entry.name.to_vec(),
                inode,
                file_type: entry.file_type,
                hash: entry.stored_hash,
            });
        }
    }
    Ok((names, parent))
}

/// The hash of the volume's new directories.
fn hasher(superblock: &Superblock) -> Result<(HashVersion, DirHasher), TuneError> {
    let version = HashVersion::decode(superblock.def_hash_version)
        .filter(|version| *version != HashVersion::SipHash)
        .unwrap_or(HashVersion::HalfMd4);
    let applied = version.with_signedness(superblock.hash_is_unsigned());
    Ok((version, DirHasher::new(applied, superblock.hash_seed)?))
}

/// Gives a file without holes a number of blocks and lets `fill` write them before the map leads
/// there.
fn resize(
    volume: &mut OfflineVolume,
    number: InodeNo,
    inode: &mut Inode,
    old: FileMap,
    blocks: u64,
    fill: impl FnOnce(&OfflineVolume, &FileMap) -> Result<(), TuneError>,
) -> Result<(), TuneError> {
    let geometry = volume.geometry().clone();
    let is_whole = old.blocks().enumerate().all(|(at, (block, _))| block.0 == at as u64);
    if !is_whole {
        return Err(TuneError::NeedsCheck(Work::RewriteDirectory(number)));
    }
    let had = old.blocks().count() as u64;
    let mut map = old;
    let mut gone = map.truncate(blocks);
    if blocks > had {
        if geometry.has_ro_compat(RoCompatFeatures::BIGALLOC) {
            return Err(TuneError::Unsupported(Unsupported::BigallocDirectory(number)));
        }
        let goal = map.extents.last().map_or(BlockNo(0), |last| last.start);
        let mut at = had;
        for run in volume.take_blocks(goal, blocks - had)? {
            for start in run {
                let extent = Extent {
                    block: FileBlock(at),
                    len: 1,
                    start: BlockNo(start),
                    is_unwritten: false,
                };
                match map.extents.last_mut() {
                    Some(last)
                        if last.start.0 + u64::from(last.len) == start
                            && last.len < extant_ondisk::extent::MAX_WRITTEN_LEN =>
                    {
                        last.len += 1;
                    }
                    _ => map.extents.push(extent),
                }
                at += 1;
            }
        }
    }
    fill(volume, &map)?;
    let (had_nodes, goal) = (map.nodes.len() as u64, map.extents.first().map(|first| first.start));
    let (i_block, left) = loop {
        match volume.write_map(number, inode, &map) {
            Ok(written) => break written,
            Err(OfflineError::Map(MapError::TooFragmented(_))) => {
                let taken = volume.take_blocks(goal.unwrap_or(BlockNo(0)), 1)?;
                map.nodes.extend(taken.into_iter().flatten().map(BlockNo));
            }
            Err(error) => return Err(error.into()),
        }
    };
    inode.i_block = i_block;
    let space = inode.space(&geometry) / u64::from(geometry.block_size);
    let nodes = (map.nodes.len() - left.len()) as u64;
    gone.extend(left.iter().map(|block| block.0..block.0 + 1));
    let ratio = u64::from(geometry.blocks_per_cluster);
    if ratio == 1 {
        volume.free_blocks_of(gone)?;
        inode.set_space(volume.geometry(), space + blocks + nodes - had - had_nodes);
        return Ok(());
    }
    // A cluster is freed when it holds no part of the file any more.
    let cluster = |block: u64| block / ratio;
    let mut gone: BTreeSet<u64> = gone.into_iter().flatten().map(cluster).collect();
    let nodes = map.nodes.iter().filter(|node| !left.contains(node)).copied();
    for block in map.blocks().map(|(_, block)| block).chain(nodes) {
        gone.remove(&cluster(block.0));
    }
    volume.free_blocks_of(gone.iter().map(|gone| gone * ratio..(gone + 1) * ratio))?;
    inode.set_space(volume.geometry(), space - gone.len() as u64 * ratio);
    Ok(())
}

/// Whether a volume's directories may be read and written: names of an index that no key is known
/// for stay as they are.
pub(super) fn all_linear(volume: &mut OfflineVolume, geometry: &Geometry) -> Result<(), TuneError> {
    let before = OfflineVolume::open_strict(volume.device().clone())?;
    super::records::each_record(volume, geometry, |volume, number, record| {
        let Ok(mut inode) = Inode::decode(record, number, geometry) else { return Ok(false) };
        let is_directory = inode.is_dir() && !inode.is_inline();
        if !is_directory || !super::records::is_used(number, &inode, geometry) {
            return Ok(false);
        }
        check(&before, number, &inode)?;
        if !inode.flags.contains(InodeFlags::INDEX) {
            return Ok(false);
        }
        directory(&before, volume, number, &mut inode, record)?;
        extant_ondisk::inode::seal(record, number, geometry);
        Ok(true)
    })
}
