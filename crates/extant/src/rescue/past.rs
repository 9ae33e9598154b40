//! A volume as it was before a commit of its log, as far as the log tells.

use std::sync::Arc;

use extant_ondisk::{BlockNo, Flaw, GroupNo, Location};
use extant_reader::{BlockKind, DataPiece, Error, MetadataRead, Reader, VolumeInfo};

use super::log_copies::{Commit, LogCopies};

/// Metadata blocks come from the log, in their newest form before the commit; a block without a
/// copy is the one in place, if the log has no later copy of it either.
#[derive(Debug)]
pub(super) struct Past<'a> {
    pub(super) reader: &'a Reader,
    pub(super) copies: &'a LogCopies,
    /// `None` for now.
    pub(super) before: Option<Commit>,
}

impl MetadataRead for Past<'_> {
    type Block = Arc<[u8]>;

    fn info(&self) -> &VolumeInfo {
        self.reader.info()
    }

    fn metadata(&self, block: BlockNo, kind: BlockKind) -> Result<Arc<[u8]>, Error> {
        let copies = self.copies.of(block);
        let is_before = |commit: Commit| self.before.is_none_or(|before| commit < before);
        for (_, copy) in copies.iter().rev().filter(|(commit, _)| is_before(*commit)) {
            let Ok(bytes) = self.copies.bytes(copy) else { continue };
            if kind.check(&bytes, block, self.geometry()).is_ok() {
                return Ok(bytes.into());
            }
        }
        if copies.iter().any(|(commit, _)| !is_before(*commit)) {
            let flaw = Flaw::Rule("the log has no copy of the block from before the deletion");
            return Err(flaw.at(Location::Block(block)).into());
        }
        let bytes = self.reader.metadata(block, kind)?;
        // A deletion leaves nodes without entries.
        let is_emptied = matches!(kind, BlockKind::ExtentNode { .. }) && bytes[2..4] == [0; 2];
        match is_emptied && self.before.is_some() {
            true => Err(Flaw::Rule("a node without entries").at(Location::Block(block)).into()),
            false => Ok(bytes),
        }
    }

    fn data(&self, pieces: &mut [DataPiece<'_>]) -> Result<(), Error> {
        self.reader.data(pieces)
    }

    fn descriptor_block(&self, index: u32) -> BlockNo {
        self.reader.descriptor_block(index)
    }

    fn inode_table(&self, group: GroupNo) -> Result<BlockNo, Error> {
        self.reader.inode_table(group)
    }
}
