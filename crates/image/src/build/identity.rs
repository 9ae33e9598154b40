//! UUID and hash seed from the content: the same tree and options give the same volume.
//!
//! They are cut from a SHA-256 over the inputs of the plan: features and sizes, label, every node's
//! type, permissions, owner, time, size, links, attributes, targets, holes, and every name. File
//! data are not read for it, so two trees that differ only in them share their UUID.

use extant_ondisk::Uuid;
use sha2::{Digest, Sha256};

use crate::mkfs::FsParams;
use crate::source::{NodeId, NodeKind, Tree};

/// Bytes collected for one call of the hash.
const PIECE: usize = 1 << 16;
/// Begins the hashed text: a new layout of it must not meet an old one.
const DOMAIN: &[u8] = b"extant build 1\n";

/// UUID and hash seed.
pub(super) fn of_content(tree: &Tree, params: &FsParams, label: &[u8], time: u64) -> (Uuid, Uuid) {
    let mut hash = Hash { state: Sha256::new(), waiting: Vec::with_capacity(2 * PIECE) };
    hash.bytes(DOMAIN);
    for features in [
        params.features.compat.bits(),
        params.features.incompat.bits(),
        params.features.ro_compat.bits(),
        params.block_size,
        params.cluster_size,
        u32::from(params.inode_size),
        u32::from(params.hash_version),
    ] {
        hash.number(u64::from(features));
    }
    hash.text(label);
    hash.number(time);
    nodes(tree, &mut hash);
    names(tree, &mut hash);
    for (_, set) in tree.xattr_sets() {
        for xattr in set {
            hash.text(xattr.name);
            hash.text(xattr.value);
        }
        hash.number(u64::MAX);
    }
    if let Some(label) = tree.lost_found_label() {
        hash.text(label);
    }
    hash.finish()
}

fn nodes(tree: &Tree, hash: &mut Hash) {
    hash.number(tree.node_count() as u64);
    for (id, node) in tree.nodes() {
        hash.number(u64::from(node.mode()) << 32 | u64::from(node.links()));
        hash.number(u64::from(node.uid()) << 32 | u64::from(node.gid()));
        hash.number(node.mtime().seconds.cast_unsigned());
        hash.number(u64::from(node.mtime().nanoseconds) << 32 | u64::from(node.xattr_set().0));
        hash.number(node.size());
        match node.kind() {
            NodeKind::Symlink => hash.text(tree.symlink_target(id)),
            NodeKind::Regular if !tree.is_dense(id) => {
                for segment in tree.segments(id) {
                    hash.number(segment.offset);
                    hash.number(segment.length);
                }
                hash.number(u64::MAX);
            }
            _ => {
                let device = node.device().map_or(0, |device| device.encoded());
                hash.number(u64::from(device));
            }
        }
    }
}

fn names(tree: &Tree, hash: &mut Hash) {
    for (id, node) in tree.nodes() {
        if node.kind() != NodeKind::Directory {
            continue;
        }
        hash.number(u64::from(id.0));
        for dirent in tree.dirents(id) {
            let NodeId(node) = dirent.node();
            hash.number(u64::from(node));
            hash.text(tree.name(dirent));
        }
    }
}

struct Hash {
    state: Sha256,
    waiting: Vec<u8>,
}

impl Hash {
    fn bytes(&mut self, bytes: &[u8]) {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= PIECE {
            self.state.update(&self.waiting);
            self.waiting.clear();
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    /// Length, then bytes: no two lists of texts run into the same bytes.
    fn text(&mut self, text: &[u8]) {
        self.number(text.len() as u64);
        self.bytes(text);
    }

    fn finish(mut self) -> (Uuid, Uuid) {
        self.state.update(&self.waiting);
        let digest: [u8; 32] = self.state.finalize().into();
        let (uuid, seed) = digest.split_at(16);
        (of_digest(uuid), of_digest(seed))
    }
}

/// Version 8: made by a rule of one's own, from RFC 9562.
fn of_digest(bytes: &[u8]) -> Uuid {
    let mut uuid = [0; 16];
    uuid.copy_from_slice(bytes);
    Uuid(uuid::Builder::from_custom_bytes(uuid).into_uuid().into_bytes())
}
