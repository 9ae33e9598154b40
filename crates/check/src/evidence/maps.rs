//! The map of a file, its directory blocks and its attributes: which of these blocks are damaged
//! while the log has a sound copy.

use super::restorer::Restorer;
use crate::older_names::OlderBlock;
use crate::store::CheckError;
use extant_evidence::BlockCopy;
use extant_ondisk::dirent::{DirFormat, dot_entries};
use extant_ondisk::extent::{self, ExtentNode, NodeLimits, NodeOwner, child_limits};
use extant_ondisk::htree::{HtreeFormat, IndexKind};
use extant_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, Inode, InodeFlags};
use extant_ondisk::{BlockNo, FileBlock, InodeNo, indirect, xattr};
use std::collections::HashSet;
use std::ops::Range;

/// A damaged block that can be restored.
pub(super) struct Proposal {
    pub(super) block: BlockNo,
    /// Its content in words.
    pub(super) what: String,
    /// It is a part of the map, and the copy may be older.
    is_older_node: bool,
}

/// A file's blocks.
#[derive(Default)]
pub(super) struct Walked {
    /// Blocks to be restored, those of the map before those that they lead to.
    pub(super) proposals: Vec<Proposal>,
    /// All blocks of the file that the map leads to.
    pub(super) claims: Vec<Range<u64>>,
    /// Damaged blocks of a directory whose copies are sound, but possibly older.
    pub(super) older: Vec<OlderBlock>,
    /// A part of the map is damaged, and cannot be restored.
    pub(super) is_cut: bool,
}

impl Walked {
    fn claim(&mut self, start: BlockNo, count: u64) {
        match self.claims.last_mut() {
            Some(last) if last.end == start.0 => last.end += count,
            _ => self.claims.push(start.0..start.0 + count),
        }
    }
}

/// The file under way.
struct File<'i> {
    number: InodeNo,
    inode: &'i Inode,
    is_current: bool,
    is_dir: bool,
    walked: Walked,
    /// Blocks of the map so far: one that the map names again is not followed again.
    met: HashSet<BlockNo>,
}

impl Restorer<'_> {
    /// Whether a file may have blocks that can be restored.
    pub(super) fn needs_walk(&self, inode: &Inode) -> bool {
        if inode.file_acl.0 != 0 && self.evidence.newest(inode.file_acl).is_some() {
            return true;
        }
        if !self.is_mapped(inode) {
            return false;
        }
        inode.is_dir()
            || match inode.is_extent_mapped() {
                true => ExtentNode::parse(&inode.i_block).is_some_and(|node| node.depth() > 0),
                false => indirect::pointers(&inode.i_block)
                    .skip(indirect::DIRECT_BLOCKS as usize)
                    .any(|block| block.0 != 0),
            }
    }

    fn is_mapped(&self, inode: &Inode) -> bool {
        match inode.file_type() {
            Some(FileType::Regular | FileType::Directory) => !inode.is_inline(),
            Some(FileType::Symlink) => !inode.is_inline() && !inode.is_fast_symlink(self.geometry),
            _ => false,
        }
    }

    /// Walks over a file's map. `is_current`: whether its inode has its last content.
    pub(super) fn walk(
        &self,
        number: InodeNo,
        inode: &Inode,
        is_current: bool,
    ) -> Result<Walked, CheckError> {
        let is_dir = inode.is_dir();
        let walked = Walked::default();
        let mut file = File { number, inode, is_current, is_dir, walked, met: HashSet::new() };
        if self.is_mapped(inode) {
            match inode.is_extent_mapped() {
                true => self.walk_extents(&mut file)?,
                false => self.walk_pointers(&mut file)?,
            }
        }
        self.walk_xattrs(&mut file)?;
        let mut walked = file.walked;
        // Copies of a part of the map that may be older must give the space that the inode counts.
        let is_older = walked.proposals.iter().any(|proposal| proposal.is_older_node);
        if is_older && (walked.is_cut || !self.has_counted_space(inode, &walked)) {
            walked.proposals.clear();
            walked.is_cut = true;
        }
        Ok(walked)
    }

    fn has_counted_space(&self, inode: &Inode, walked: &Walked) -> bool {
        let of_map: u64 = walked.claims.iter().map(|run| run.end - run.start).sum();
        let found = of_map + u64::from(inode.file_acl.0 != 0);
        let counted = inode.space(self.geometry) / u64::from(self.geometry.block_size);
        self.geometry.blocks_per_cluster == 1 && found == counted
    }

    /// Whether a copy was committed after the last change of an inode that is current: then it is
    /// not older than what the inode says of the file.
    fn is_after_change(&self, copy: &BlockCopy, inode: &Inode) -> bool {
        let nanoseconds = match self.geometry.inode_size {
            GOOD_OLD_INODE_SIZE => 1_000_000_000,
            _ => inode.ctime.nanoseconds,
        };
        copy.is_after(inode.ctime.seconds, nanoseconds)
    }

    /// Whether a copy was committed after the last check, which may have written the block without
    /// the journal.
    fn is_after_check(&self, copy: &BlockCopy) -> bool {
        let last = self.store.superblock().last_check;
        u64::try_from(copy.committed.seconds).is_ok_and(|at| at > last)
    }

    /// Looks whether a block of a file is damaged, and whether its copy is sound: then it is
    /// proposed. The bytes that count, if any are sound.
    fn sound(
        &self,
        file: &mut File<'_>,
        block: BlockNo,
        what: impl FnOnce() -> String,
        is_node: bool,
        is_sound: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<Vec<u8>>, CheckError> {
        let in_place = self.block(block)?;
        if is_sound(&in_place) {
            return Ok(Some(in_place));
        }
        let Some((copy, bytes)) = self.copy_of(block) else { return Ok(None) };
        let is_proven = copy.is_certain()
            || is_node
            || !file.is_current
            || self.is_after_change(&copy, file.inode) && self.is_after_check(&copy);
        if !is_proven || !is_sound(&bytes) {
            return Ok(None);
        }
        let is_older_node = is_node && !copy.is_certain();
        file.walked.proposals.push(Proposal { block, what: what(), is_older_node });
        Ok(Some(bytes))
    }

    fn walk_extents(&self, file: &mut File<'_>) -> Result<(), CheckError> {
        let (number, generation) = (file.number, file.inode.generation);
        let root = NodeOwner { inode: number, generation, block: None };
        let mut open = vec![(root, NodeLimits::ROOT)];
        while let Some((owner, limits)) = open.pop() {
            let bytes = match owner.block {
                None => Some(file.inode.i_block.to_vec()),
                Some(block) => {
                    let what = || format!("extents of inode {number}");
                    self.sound(file, block, what, true, |bytes| {
                        extent::verify(bytes, &owner, self.geometry).is_ok()
                            && ExtentNode::check(bytes, &owner, &limits, self.geometry).is_ok()
                    })?
                }
            };
            let node = bytes
                .as_deref()
                .map(|bytes| ExtentNode::check(bytes, &owner, &limits, self.geometry));
            match node {
                Some(Ok(ExtentNode::Leaf(extents))) => {
                    for extent in extents.iter().map(|raw| raw.decode()) {
                        file.walked.claim(extent.start, u64::from(extent.len));
                        if file.is_dir {
                            let start = extent.start.0;
                            for block in self.homes_in(start..start + u64::from(extent.len)) {
                                let at = extent.block.0 + (block.0 - start);
                                self.look_at_dir_block(file, at, block)?;
                            }
                        }
                    }
                }
                Some(Ok(ExtentNode::Index(indexes, below))) => {
                    // The last one is taken first.
                    for position in (0..indexes.len()).rev() {
                        let child = child_limits(indexes, below, position, &limits);
                        let Some((index, limits)) = child else { continue };
                        if !file.met.insert(index.leaf) {
                            file.walked.is_cut = true;
                            continue;
                        }
                        file.walked.claim(index.leaf, 1);
                        open.push((NodeOwner { block: Some(index.leaf), ..owner }, limits));
                    }
                }
                Some(Err(_)) | None => file.walked.is_cut = true,
            }
        }
        Ok(())
    }

    fn walk_pointers(&self, file: &mut File<'_>) -> Result<(), CheckError> {
        let number = file.number;
        let per_block = indirect::IndirectMap::new(self.geometry.block_size).pointers_per_block();
        // Block, levels of blocks of pointers from here on, first logical block.
        let mut open: Vec<(BlockNo, u32, u64)> = Vec::new();
        let mut first = 0;
        for (slot, block) in indirect::pointers(&file.inode.i_block).enumerate() {
            let levels = (slot as u32 + 1).saturating_sub(indirect::DIRECT_BLOCKS as u32);
            open.push((block, levels, first));
            first += per_block.pow(levels);
        }
        open.reverse();
        while let Some((block, levels, first)) = open.pop() {
            if block.0 == 0 {
                continue;
            }
            if !self.geometry.contains(block, 1) || levels > 0 && !file.met.insert(block) {
                file.walked.is_cut = true;
                continue;
            }
            file.walked.claim(block, 1);
            if levels == 0 {
                if file.is_dir {
                    self.look_at_dir_block(file, first, block)?;
                }
                continue;
            }
            let what = || format!("block map of inode {number}");
            let bytes =
                self.sound(file, block, what, true, |bytes| self.is_pointer_block(bytes))?;
            let Some(bytes) = bytes else {
                file.walked.is_cut = true;
                continue;
            };
            let step = per_block.pow(levels - 1);
            let children = indirect::pointers(&bytes).enumerate();
            let children = children.filter(|(_, block)| block.0 != 0);
            let before = open.len();
            open.extend(children.map(|(at, block)| (block, levels - 1, first + at as u64 * step)));
            open[before..].reverse();
        }
        Ok(())
    }

    /// A block of pointers leads to blocks of the volume, and to one at least.
    fn is_pointer_block(&self, bytes: &[u8]) -> bool {
        let mut is_empty = true;
        let can_be = indirect::pointers(bytes).all(|block| {
            is_empty &= block.0 == 0;
            block.0 == 0 || self.geometry.contains(block, 1)
        });
        can_be && !is_empty
    }

    /// A directory's block is read only where the log has a copy.
    fn look_at_dir_block(
        &self,
        file: &mut File<'_>,
        at: u64,
        block: BlockNo,
    ) -> Result<(), CheckError> {
        if self.evidence.newest(block).is_none() {
            return Ok(());
        }
        let (number, inode) = (file.number, file.inode);
        let what = || format!("block {at} of directory {number}");
        let is_sound = |bytes: &[u8]| self.is_dir_block(bytes, number, inode, FileBlock(at));
        if self.sound(file, block, what, false, is_sound)?.is_some() {
            return Ok(());
        }
        // Without checksums the first block alone says whose it is.
        let is_named = self.geometry.has_metadata_csum() || at == 0;
        if is_named && self.copy_of(block).is_some_and(|(_, bytes)| is_sound(&bytes)) {
            let format = DirFormat::of_inode(self.geometry, number, inode);
            file.walked.older.push(OlderBlock { dir: number, at: FileBlock(at), block, format });
        }
        Ok(())
    }

    fn is_dir_block(&self, bytes: &[u8], number: InodeNo, inode: &Inode, at: FileBlock) -> bool {
        let format = DirFormat::of_inode(self.geometry, number, inode);
        let has_dots = || match dot_entries(&format, bytes) {
            Ok((dot, _)) => dot == number,
            Err(_) => false,
        };
        if at.0 == 0 && !has_dots() {
            return false;
        }
        let is_chain = || format.entries(bytes, at).all(|entry| entry.is_ok());
        if format.verify(bytes, at).is_ok() && is_chain() {
            return true;
        }
        if !inode.flags.contains(InodeFlags::INDEX) {
            return false;
        }
        let index = HtreeFormat::new(self.geometry, number, inode.generation);
        if at.0 == 0 {
            return index.verify(bytes, at, IndexKind::Root).is_ok() && index.root(bytes).is_ok();
        }
        index.verify(bytes, at, IndexKind::Node).is_ok()
            && index.node(bytes, at, IndexKind::Node).is_ok()
            && is_chain()
    }

    fn walk_xattrs(&self, file: &mut File<'_>) -> Result<(), CheckError> {
        let block = file.inode.file_acl;
        if block.0 == 0 {
            return Ok(());
        }
        if !self.geometry.contains(block, 1) {
            file.walked.is_cut = true;
            return Ok(());
        }
        // Files may share a block of attributes: it is counted, and claimed by none.
        if self.evidence.newest(block).is_some() {
            let number = file.number;
            let what = || format!("extended attributes of inode {number}");
            self.sound(file, block, what, false, |bytes| {
                xattr::verify_block(bytes, block, self.geometry).is_ok()
                    && xattr::decode_block(bytes, block, self.geometry).is_ok()
            })?;
        }
        Ok(())
    }
}
