//! The orphan file itself: its inode, its map and the format of its blocks.

use super::context::{OpenState, Pass0};
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use extant_offline::{OfflineError, OfflineVolume};
use extant_ondisk::inode::{FileType, Inode};
use extant_ondisk::orphan_file::OrphanFileFormat;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{
    BlockNo, CompatFeatures, FileBlock, IncompatFeatures, InodeNo, RoCompatFeatures,
};

/// Logical blocks of a file and where they lie.
type BlocksOfFile = Vec<(FileBlock, BlockNo)>;

impl Pass0<'_> {
    /// The orphan file: a regular file of whole blocks without holes, each with its magic number
    /// and checksum.
    pub(super) fn check_orphan_file(&mut self) -> Result<(), CheckError> {
        let features = self.volume.raw.features();
        // The journal may hold a newer copy.
        if !features.compat.contains(CompatFeatures::ORPHAN_FILE)
            || features.incompat.contains(IncompatFeatures::RECOVER)
        {
            return Ok(());
        }
        let number = InodeNo(self.volume.raw.s_orphan_file_inum.get());
        let (mut file, blocks) = match self.orphan_blocks(number) {
            Ok(found) => found,
            Err(flaw) => {
                let finding =
                    Finding::new(Code::OrphanFileInvalid).inode(number).detail(flaw.to_owned());
                // The passes check the inode; the kernel works without such a file.
                if self.should_fix(finding)? {
                    self.state.needs_passes = true;
                    self.forget_orphan_file()?;
                }
                return Ok(());
            }
        };
        let block_size = u64::from(self.volume.geometry().block_size);
        let whole = blocks.len() as u64 * block_size;
        // Pass 1 checks whether the size is too small for the map.
        if file.size > whole || file.size > whole - block_size && file.size != whole {
            let detail = format!("its size is {}, not {whole}", file.size);
            if self
                .should_fix(Finding::new(Code::OrphanFileInvalid).inode(number).detail(detail))?
            {
                file.size = whole;
                let mut record = self.volume.read_inode(number)?;
                file.encode_into(&mut record, self.volume.geometry());
                self.volume.write_inode(number, &mut record)?;
            }
        }
        let generation = file.generation;
        let format = OrphanFileFormat::new(self.volume.geometry(), number, generation);
        let is_present = features.ro_compat.contains(RoCompatFeatures::ORPHAN_PRESENT);
        for (at, block) in blocks {
            let bytes = self.read(block)?;
            let flaw = match format.verify(&bytes, at, block) {
                Err(error) => Some(error.to_string()),
                Ok(()) if !is_present && !is_empty(&format, &bytes, block) => {
                    Some("not empty, but there are no orphans".to_owned())
                }
                Ok(()) => None,
            };
            let Some(flaw) = flaw else { continue };
            let finding = Finding::new(Code::OrphanBlockInvalid)
                .inode(number)
                .file_block(at)
                .block(block)
                .detail(flaw);
            if self.should_fix(finding)? {
                // Inodes that it named have no name: pass 4 finds them. The block may belong to
                // another file, which the passes find: it is written after them.
                self.state.needs_passes = true;
                self.state.invalid_orphan_blocks.push(at);
            }
        }
        Ok(())
    }

    /// The orphan file, and the location of its blocks; or the flaw that makes it invalid.
    fn orphan_blocks(&self, number: InodeNo) -> Result<(Inode, BlocksOfFile), &'static str> {
        let (_, file) = self.orphan(number).ok_or("inode not in use")?;
        if file.file_type() != Some(FileType::Regular) || file.links == 0 || file.is_inline() {
            return Err("not a regular file");
        }
        let map = self.volume.read_map(number, &file).map_err(|_| "invalid block map")?;
        let mut next = 0;
        for extent in &map.extents {
            if extent.block.0 != next || extent.is_unwritten {
                return Err("has a hole");
            }
            next = extent.end().0;
        }
        if next == 0 {
            return Err("has no blocks");
        }
        Ok((file, map.blocks().collect()))
    }
}

/// Empties the blocks of the orphan file that were not valid, after the passes: no other file has
/// them now. Without a map that leads to them nothing is written.
pub(super) fn empty_invalid_blocks(
    volume: &mut OfflineVolume,
    state: &OpenState,
) -> Result<(), CheckError> {
    let has_file = volume.raw.features().compat.contains(CompatFeatures::ORPHAN_FILE);
    if state.invalid_orphan_blocks.is_empty() || !has_file {
        return Ok(());
    }
    let number = InodeNo(volume.raw.s_orphan_file_inum.get());
    let found = volume.read_inode(number).and_then(|record| {
        let file = Inode::decode(&record, number, volume.geometry())?;
        Ok((volume.read_map(number, &file)?, file.generation))
    });
    let (map, generation) = match found {
        Ok(found) => found,
        Err(OfflineError::Device(error)) => return Err(error.into()),
        Err(_) => return Ok(()),
    };
    let format = OrphanFileFormat::new(volume.geometry(), number, generation);
    for (at, block) in map.blocks().collect::<Vec<_>>() {
        if state.invalid_orphan_blocks.contains(&at) {
            let mut empty = vec![0; volume.geometry().block_len()];
            format.seal(&mut empty, block);
            volume.write(block, &empty)?;
        }
    }
    Ok(())
}

/// Whether a block lists no inode and is in its initial state.
pub(super) fn is_empty(format: &OrphanFileFormat, bytes: &[u8], block: BlockNo) -> bool {
    let mut made = vec![0; bytes.len()];
    format.seal(&mut made, block);
    made == bytes
}

/// Takes the orphan file off a superblock: orphans are kept in a list then.
pub(crate) fn forget_orphan_file(raw: &mut RawSuperblock) {
    let mut features = raw.features();
    features.compat -= CompatFeatures::ORPHAN_FILE;
    features.ro_compat -= RoCompatFeatures::ORPHAN_PRESENT;
    raw.set_features(features);
    raw.s_orphan_file_inum.set(0);
}
