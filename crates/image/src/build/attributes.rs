//! Extended attributes of the tree: those in inodes, those in blocks that inodes of one set share,
//! and those in inodes of their own.

use std::collections::HashMap;

use extant_ondisk::InodeNo;
use extant_ondisk::acl::Acl;
use extant_ondisk::xattr::pack::{Packing, Room, pack};
use extant_ondisk::xattr::{EaValue, MAX_BLOCK_REFCOUNT, Value, Xattr, XattrName, value_hash};
use sha2::{Digest, Sha256};

use super::error::BuildError;
use crate::source::{ACL_ACCESS, ACL_DEFAULT, EntryName, NodeId, Tree, XattrSetId};

/// No block.
const NONE: u32 = u32::MAX;

/// A value with an inode of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct EaFile {
    /// A set that holds it.
    set: XattrSetId,
    /// Its place in that set.
    entry: usize,
    /// Bytes.
    pub(super) size: u32,
    /// Inodes and blocks that refer to it.
    pub(super) references: u64,
}

/// The locations of all nodes' attributes.
#[derive(Debug)]
pub(super) struct Attributes {
    room: Room,
    /// By node, among the blocks of attributes; empty where there are none.
    block_of_node: Vec<u32>,
    /// By block: the set that it holds, and how many inodes share it.
    pub(super) blocks: Vec<(XattrSetId, u32)>,
    pub(super) ea_files: Vec<EaFile>,
    /// Set and place in it, to the index of its value among `ea_files`.
    ea_of_entry: HashMap<(XattrSetId, usize), usize>,
}

/// The attributes of one set, divided.
pub(super) struct Divided {
    pub(super) in_inode: Vec<Xattr>,
    pub(super) in_block: Vec<Xattr>,
}

impl Attributes {
    /// Divides all sets. `is_inline` selects the nodes whose data are stored in the inode in
    /// addition to all their attributes.
    pub(super) fn new(
        tree: &Tree,
        room: Room,
        is_inline: impl Fn(NodeId) -> bool,
    ) -> Result<Self, BuildError> {
        let mut attributes = Self {
            room,
            block_of_node: Vec::new(),
            blocks: Vec::new(),
            ea_files: Vec::new(),
            ea_of_entry: HashMap::new(),
        };
        let sets = tree.xattr_sets().len();
        if sets <= 1 {
            return Ok(attributes);
        }
        let mut users = vec![0_u32; sets];
        for (id, node) in tree.nodes() {
            if node.xattr_set() != XattrSetId::NONE && !is_inline(id) {
                users[node.xattr_set().0 as usize] += 1;
            }
        }
        let mut next_block = vec![NONE; sets];
        let mut ea_by_value = HashMap::new();
        for (set, _) in tree.xattr_sets().filter(|(set, _)| users[set.0 as usize] > 0) {
            let count = users[set.0 as usize];
            let entries = entries_of(tree, set)?;
            let packing = pack(&entries, room);
            if let Some(&at) = packing.does_not_fit.first() {
                return Err(attributes.no_room(tree, set, &entries[at]));
            }
            let set_blocks = if packing.in_block.is_empty() {
                0
            } else {
                next_block[set.0 as usize] = attributes.blocks.len() as u32;
                let full = MAX_BLOCK_REFCOUNT;
                let blocks = count.div_ceil(full);
                attributes
                    .blocks
                    .extend((0..blocks).map(|block| (set, full.min(count - block * full))));
                blocks
            };
            attributes.add_ea_files(set, &entries, &packing, (count, set_blocks), &mut ea_by_value);
        }
        if !attributes.blocks.is_empty() {
            attributes.share_blocks(tree, next_block, is_inline);
        }
        Ok(attributes)
    }

    /// Gives each node its block: as many nodes to a block as may share it.
    fn share_blocks(
        &mut self,
        tree: &Tree,
        mut next_block: Vec<u32>,
        is_inline: impl Fn(NodeId) -> bool,
    ) {
        let mut sharing = vec![0_u32; next_block.len()];
        self.block_of_node = vec![NONE; tree.node_count()];
        for (id, node) in tree.nodes() {
            let set = node.xattr_set().0 as usize;
            if next_block[set] == NONE || is_inline(id) {
                continue;
            }
            self.block_of_node[id.index()] = next_block[set];
            sharing[set] += 1;
            if sharing[set] == MAX_BLOCK_REFCOUNT {
                sharing[set] = 0;
                next_block[set] += 1;
            }
        }
    }

    fn add_ea_files(
        &mut self,
        set: XattrSetId,
        entries: &[Xattr],
        packing: &Packing,
        (users, blocks): (u32, u32),
        by_value: &mut HashMap<[u8; 32], usize>,
    ) {
        for &entry in &packing.to_ea_inode {
            let value = stored(&entries[entry]);
            let digest = Sha256::digest(value).into();
            let index = *by_value.entry(digest).or_insert(self.ea_files.len());
            if index == self.ea_files.len() {
                let size = value.len() as u32; // at most 65,536
                self.ea_files.push(EaFile { set, entry, size, references: 0 });
            }
            let is_in_block = packing.in_block.contains(&entry);
            self.ea_files[index].references += u64::from(if is_in_block { blocks } else { users });
            self.ea_of_entry.insert((set, entry), index);
        }
    }

    fn no_room(&self, tree: &Tree, set: XattrSetId, xattr: &Xattr) -> BuildError {
        let node = tree.nodes().find(|(_, node)| node.xattr_set() == set).map(|(id, _)| id);
        BuildError::XattrRoom {
            path: EntryName(node.map_or_else(Vec::new, |node| tree.path_of(node))),
            name: xattr.name.to_string(),
            needed: xattr.stored_len(),
            has_ea_inodes: self.room.has_ea_inodes,
        }
    }

    /// The attributes of a set by location; `ea_inode` gives the inode of each value that has one.
    pub(super) fn divided(
        &self,
        tree: &Tree,
        set: XattrSetId,
        checksum_seed: u32,
        ea_inode: impl Fn(usize) -> InodeNo,
    ) -> Result<Divided, BuildError> {
        let mut entries = entries_of(tree, set)?;
        let packing = pack(&entries, self.room);
        for &entry in &packing.to_ea_inode {
            let Some(&index) = self.ea_of_entry.get(&(set, entry)) else { continue };
            let (size, hash) = {
                let value = stored(&entries[entry]);
                (value.len() as u32, value_hash(value, checksum_seed))
            };
            entries[entry].value = Value::EaInode(EaValue { inode: ea_inode(index), size, hash });
        }
        let pick = |places: &[usize]| places.iter().map(|&at| entries[at].clone()).collect();
        Ok(Divided { in_inode: pick(&packing.in_inode), in_block: pick(&packing.in_block) })
    }

    /// The block that a node's attributes share, among [`Self::blocks`].
    pub(super) fn block_of(&self, node: NodeId) -> Option<usize> {
        let block = *self.block_of_node.get(node.index())?;
        (block != NONE).then_some(block as usize)
    }

    /// Usage that a node's owner is charged for values with inodes of their own: their number, and
    /// their bytes in whole clusters.
    pub(super) fn ea_charge(
        &self,
        tree: &Tree,
        set: XattrSetId,
        cluster_size: u64,
    ) -> Result<(u64, u64), BuildError> {
        if self.ea_files.is_empty() || set == XattrSetId::NONE {
            return Ok((0, 0));
        }
        let packing = pack(&entries_of(tree, set)?, self.room);
        let indexes = packing.to_ea_inode.iter().filter_map(|&at| self.ea_of_entry.get(&(set, at)));
        Ok(indexes.fold((0, 0), |(count, bytes), &index| {
            let size = u64::from(self.ea_files[index].size);
            (count + 1, bytes + size.next_multiple_of(cluster_size))
        }))
    }

    /// The value of an inode of its own.
    pub(super) fn ea_value(&self, tree: &Tree, file: &EaFile) -> Result<Vec<u8>, BuildError> {
        let mut entries = entries_of(tree, file.set)?;
        match entries.swap_remove(file.entry).value {
            Value::Stored(value) => Ok(value),
            Value::EaInode(_) => Ok(Vec::new()),
        }
    }
}

fn stored(xattr: &Xattr) -> &[u8] {
    match &xattr.value {
        Value::Stored(value) => value,
        Value::EaInode(_) => &[],
    }
}

/// The attributes of a set as ext4 stores them, ACLs in their compact form.
pub(super) fn entries_of(tree: &Tree, set: XattrSetId) -> Result<Vec<Xattr>, BuildError> {
    let node = || tree.nodes().find(|(_, node)| node.xattr_set() == set).map(|(id, _)| id);
    let path = || EntryName(node().map_or_else(Vec::new, |node| tree.path_of(node)));
    let mut entries = Vec::new();
    for xattr in tree.xattr_set(set) {
        let bad = || BuildError::XattrName { path: path(), name: xattr.name.into() };
        let name = XattrName::parse(xattr.name).ok_or_else(bad)?;
        let value = if xattr.name == ACL_ACCESS || xattr.name == ACL_DEFAULT {
            let acl = Acl::decode_xattr(xattr.value)
                .map_err(|source| BuildError::Acl { path: path(), source })?;
            match acl {
                Some(acl) => acl.encode_disk(),
                None => continue,
            }
        } else {
            xattr.value.to_vec()
        };
        entries.push(Xattr::new(name, value));
    }
    Ok(entries)
}
