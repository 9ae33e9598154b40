//! Extended attributes: in inodes, in shared blocks, with values in inodes of their own; and the
//! policies of encryption.

use super::visit::Visit;
use crate::context::Check;
use crate::finding::{Code, Finding};
use crate::store::CheckError;
use crate::tables::{Mark, XattrBlocks};
use extant_ondisk::inode::{self, FileType, Inode, InodeFlags};
use extant_ondisk::xattr::{
    self, EaValue, NameIndex, RawXattrHeader, Value, ValueRef, XATTR_MAGIC, Xattr, XattrRef,
    value_hash,
};
use extant_ondisk::{BlockNo, CompatFeatures, Flaw, FormatError, IncompatFeatures, InodeNo};

/// The flaws that e2fsck calls a collision: entries, names or values that overlap others, or lie
/// past the end.
const COLLISIONS: [&str; 3] = [
    "attribute values overlap",
    "attribute name extends past the end",
    "attribute value extends past the end",
];

/// The owner that is charged for the inode of a value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Payer {
    /// All inodes that refer to it, which are counted.
    Referrers,
    /// The only one that may: an older form.
    Owner,
}

/// The repair of an attribute whose value has an inode of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mend {
    Drop,
    /// The value is that of the inode; `e_value_size` becomes this.
    Size(u32),
}

/// The attributes as they are to be written.
fn mended(entries: &[XattrRef<'_>], mends: &[(usize, Mend)]) -> Vec<Xattr> {
    let mend_of = |at: usize| mends.iter().find(|(of, _)| *of == at).map(|(_, mend)| *mend);
    let kept = entries.iter().enumerate().filter(|(at, _)| mend_of(*at) != Some(Mend::Drop));
    kept.map(|(at, entry)| {
        let mut xattr = entry.to_owned();
        if let (Some(Mend::Size(size)), Value::EaInode(value)) = (mend_of(at), &mut xattr.value) {
            value.size = size;
        }
        xattr
    })
    .collect()
}

/// Where attributes lie.
enum XattrRegion {
    /// After the inode's fields.
    Inode,
    /// In a block, with the findings of a scan there.
    Block(Vec<Finding>),
}

/// Counts and facts of an inode's attributes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct XattrCounts {
    /// The block of attributes.
    pub(crate) clusters: u64,
    /// Clusters of values in inodes of their own.
    pub(crate) ea_clusters: u64,
    /// Inodes of values.
    pub(crate) ea_inodes: u64,
    /// Bytes of the value that holds inline data's rest.
    pub(crate) inline_len: Option<u64>,
}

impl Check<'_> {
    /// Whether inodes may have an attribute block; attributes after an inode's fields are checked
    /// whatever the features are.
    pub(crate) fn has_xattr_blocks(&self) -> bool {
        self.geometry.has_compat(CompatFeatures::EXT_ATTR)
    }

    pub(super) fn check_xattrs(&self, visit: &mut Visit<'_>) -> Result<XattrCounts, CheckError> {
        let mut counts = XattrCounts::default();
        let mut context = None;
        self.check_in_inode(visit, &mut counts, &mut context)?;
        if visit.inode.file_acl.0 != 0 && self.has_xattr_blocks() {
            self.check_acl_block(visit, &mut counts, &mut context)?;
        }
        if visit.inode.flags.contains(InodeFlags::ENCRYPT) {
            self.check_encryption(visit, context)?;
        }
        Ok(counts)
    }

    /// Checks the attributes after the inode's fields.
    fn check_in_inode(
        &self,
        visit: &mut Visit<'_>,
        counts: &mut XattrCounts,
        context: &mut Option<Vec<u8>>,
    ) -> Result<(), CheckError> {
        let start = 128 + usize::from(visit.inode.extra_isize);
        let Some(space) = visit.record.get(start..) else { return Ok(()) };
        if visit.inode.extra_isize == 0
            || space
                .first_chunk::<4>()
                .is_none_or(|magic| u32::from_le_bytes(*magic) != XATTR_MAGIC)
        {
            return Ok(());
        }
        let mut mends = Vec::new();
        let problem = match xattr::decode_inode(space, visit.ino, self.geometry) {
            Ok(entries) => self.check_entries(
                visit.ino,
                &entries,
                counts,
                context,
                &mut mends,
                &mut XattrRegion::Inode,
            )?,
            Err(error) => {
                if let Some(value) = self.value_without_feature(&error)? {
                    self.should_set_ea_feature(visit.ino, value, &mut XattrRegion::Inode)?;
                    return Ok(());
                }
                Some(self.in_inode_flaw(visit.ino, &error))
            }
        };
        if let Some(finding) = problem
            && self.should_fix(finding)?
        {
            if let Some(space) = visit.record.get_mut(start..) {
                space.fill(0);
            }
            visit.dirty = true;
            *counts = XattrCounts::default();
            *context = None;
            return Ok(());
        }
        if !mends.is_empty() {
            self.mend_values(visit, start, &mends);
        }
        Ok(())
    }

    /// The inode of a value, recognised by its flag, which an attribute names on a volume that
    /// lacks the feature.
    fn value_without_feature(&self, error: &FormatError) -> Result<Option<InodeNo>, CheckError> {
        let FormatError::Corrupt { flaw: Flaw::BadValue { field: "e_value_inum", found }, .. } =
            error
        else {
            return Ok(None);
        };
        let Ok(number) = u32::try_from(*found).map(InodeNo) else { return Ok(None) };
        if self.geometry.has_incompat(IncompatFeatures::EA_INODE) {
            return Ok(None);
        }
        let Some(record) = self.store.read_inode(number)? else { return Ok(None) };
        let is_value = Inode::decode(&record, number, self.geometry).is_ok_and(|inode| {
            inode.file_type() == Some(FileType::Regular)
                && inode.links > 0
                && inode.flags.contains(InodeFlags::EA_INODE)
        });
        Ok(is_value.then_some(number))
    }

    fn should_set_ea_feature(
        &self,
        ino: InodeNo,
        value: InodeNo,
        region: &mut XattrRegion,
    ) -> Result<(), CheckError> {
        let finding = Finding::new(Code::EaInodeFeatureMissing).inode(ino);
        if self.should_fix_value(finding.found(u64::from(value.0)), region)? {
            self.store.update_superblock(|raw| {
                let features = raw.s_feature_incompat.get() | IncompatFeatures::EA_INODE.bits();
                raw.s_feature_incompat.set(features);
            })?;
            self.need_restart();
        }
        Ok(())
    }

    fn in_inode_flaw(&self, ino: InodeNo, error: &FormatError) -> Finding {
        match error {
            FormatError::Corrupt { flaw: Flaw::Rule(rule), .. } if COLLISIONS.contains(rule) => {
                Finding::new(Code::EaInInodeCollision).inode(ino)
            }
            // The value starts among the entries.
            FormatError::Corrupt {
                flaw: Flaw::BelowLimit { field: "e_value_offs", .. }, ..
            } => Finding::new(Code::EaInInodeCollision).inode(ino),
            FormatError::Corrupt { flaw, .. } => {
                Finding::new(Code::EaInInodeInvalid).inode(ino).detail(flaw.to_string())
            }
            other => Finding::new(Code::EaInInodeInvalid).inode(ino).detail(other.to_string()),
        }
    }

    /// Decides at once in a repair. Findings of a scan in a block are reported later, for the
    /// lowest inode that refers to it: the first inode to reach it depends on threads.
    fn should_fix_value(
        &self,
        finding: Finding,
        region: &mut XattrRegion,
    ) -> Result<bool, CheckError> {
        match region {
            XattrRegion::Block(findings) if !self.is_repair() => {
                findings.push(finding);
                Ok(false)
            }
            _ => self.should_fix(finding),
        }
    }

    /// Entries that decode: hashes, values with inodes of their own. Repairs of single entries are
    /// collected in `mends`; a flaw of the whole region is returned.
    fn check_entries(
        &self,
        ino: InodeNo,
        entries: &[XattrRef<'_>],
        counts: &mut XattrCounts,
        context: &mut Option<Vec<u8>>,
        mends: &mut Vec<(usize, Mend)>,
        region: &mut XattrRegion,
    ) -> Result<Option<Finding>, CheckError> {
        let in_inode = matches!(region, XattrRegion::Inode);
        for (at, entry) in entries.iter().enumerate() {
            if !entry.hash_matches() && in_inode {
                let found = u64::from(entry.hash);
                return Ok(Some(Finding::new(Code::EaInInodeHash).inode(ino).found(found)));
            }
            match entry.value {
                ValueRef::Stored(value) => {
                    if entry.name.is_inline_data() && in_inode {
                        counts.inline_len = Some(value.len() as u64);
                    }
                    if entry.name.index == NameIndex::ENCRYPTION {
                        *context = Some(value.to_vec());
                    }
                }
                ValueRef::EaInode(value) => {
                    let found = u64::from(value.inode.0);
                    let Some((payer, size)) = self.check_value(ino, &value, entry, region)? else {
                        let finding = Finding::new(Code::EaValueInode).inode(ino).found(found);
                        if self.should_fix_value(finding, region)? {
                            mends.push((at, Mend::Drop));
                        }
                        continue;
                    };
                    if size != value.size {
                        let finding = Finding::new(Code::EaValueSize).inode(ino);
                        let finding = finding.found(value.size.into()).expected(size.into());
                        if self.should_fix_value(finding, region)? {
                            mends.push((at, Mend::Size(size)));
                        }
                    }
                    // An owner's value is neither counted nor charged.
                    if payer == Payer::Referrers {
                        let cluster = self.geometry.cluster_size();
                        counts.ea_clusters += u64::from(size).div_ceil(cluster);
                        counts.ea_inodes += 1;
                        self.ea_inodes.refer(value.inode, &self.budget);
                    }
                }
            }
        }
        Ok(None)
    }

    /// Whether an inode holds the value of an entry: a regular file whose bytes have the entry's
    /// hash and size. The size may differ if the hash is stored. Returns the owner that is charged
    /// for the value, and its size; `None` if it is missing.
    fn check_value(
        &self,
        ino: InodeNo,
        value: &EaValue,
        entry: &XattrRef<'_>,
        region: &mut XattrRegion,
    ) -> Result<Option<(Payer, u32)>, CheckError> {
        if value.inode < self.geometry.first_inode || value.inode == ino {
            return Ok(None);
        }
        let Some(mut record) = self.store.read_inode(value.inode)? else { return Ok(None) };
        let Ok(mut holder) = Inode::decode(&record, value.inode, self.geometry) else {
            return Ok(None);
        };
        let is_file = holder.file_type() == Some(FileType::Regular) && holder.links > 0;
        let size = u32::try_from(holder.size).ok().filter(|size| *size <= xattr::MAX_VALUE_SIZE);
        let Some(size) = size.filter(|_| is_file && !holder.is_inline()) else { return Ok(None) };
        let bytes = self.read_content(value.inode, &holder, xattr::MAX_VALUE_SIZE.into())?;
        let hash = value_hash(&bytes, self.geometry.checksum_seed);
        // An older form, Lustre's: no hash, but the inode names its owner where others keep their
        // time of change.
        let is_of_owner =
            holder.mtime.seconds == i64::from(ino.0) && holder.flags.contains(InodeFlags::EA_INODE);
        if holder.ea_inode_checksum() != hash && !is_of_owner {
            return Ok(None);
        }
        // Entries inside an inode may have no hash.
        if !entry.has_hash_of(hash) && entry.hash != 0 && !is_of_owner {
            return Ok(None);
        }
        if size != value.size && (!entry.has_hash_of(hash) || entry.hash == 0) {
            return Ok(None);
        }
        if !holder.flags.contains(InodeFlags::EA_INODE) {
            let found = u64::from(value.inode.0);
            let finding = Finding::new(Code::EaInodeWithoutFlag).inode(ino).found(found);
            if self.should_fix_value(finding, region)? {
                holder.flags |= InodeFlags::EA_INODE;
                holder.encode_into(&mut record, self.geometry);
                self.store.write_inode(value.inode, &mut record)?;
                self.inodes.mark(value.inode, Mark::EA_INODE);
            }
        }
        Ok(Some((if is_of_owner { Payer::Owner } else { Payer::Referrers }, size)))
    }

    /// Encodes the attributes in an inode again, with the mends applied.
    fn mend_values(&self, visit: &mut Visit<'_>, start: usize, mends: &[(usize, Mend)]) {
        let space = visit.record[start..].to_vec();
        let Ok(entries) = xattr::decode_inode(&space, visit.ino, self.geometry) else { return };
        let kept = mended(&entries, mends);
        if xattr::encode_inode(kept.iter(), &mut visit.record[start..]).is_ok() {
            visit.dirty = true;
        }
    }

    /// The block of attributes that the inode names.
    pub(super) fn check_acl_block(
        &self,
        visit: &mut Visit<'_>,
        counts: &mut XattrCounts,
        context: &mut Option<Vec<u8>>,
    ) -> Result<(), CheckError> {
        let block = visit.inode.file_acl;
        if !self.geometry.contains(block, 1) {
            visit.marks |= Mark::SUSPECT;
            return Ok(());
        }
        let ino = visit.ino;
        let known = self
            .xattr_blocks
            .refer(block, ino, &self.budget, || self.check_shared_block(ino, block))?;
        if !known.is_sound {
            // Each inode that refers to it drops it: the content is lost for all.
            let finding = match known.bad_hash {
                Some(hash) => visit.finding(Code::EaInInodeHash).found(u64::from(hash)),
                None => visit.finding(Code::EaBlockCorrupt).detail("no extended attributes".into()),
            };
            let finding = finding.block(block);
            if self.should_fix(finding)? {
                visit.inode.file_acl = BlockNo(0);
                visit.dirty = true;
                self.xattr_blocks.unrefer(block);
            }
            return Ok(());
        }
        if visit.inode.is_inline() && visit.inode.file_type() == Some(FileType::Symlink) {
            // e2fsck leaves such a link's reference uncounted, and the count has to please both.
            self.xattr_blocks.unrefer(block);
        }
        counts.clusters += 1;
        counts.ea_clusters += known.ea_bytes;
        counts.ea_inodes += known.ea_inodes;
        if visit.inode.flags.contains(InodeFlags::ENCRYPT) && context.is_none() {
            let bytes = self.store.read(block)?;
            if let Ok(entries) = xattr::decode_block(&bytes, block, self.geometry) {
                let found = entries.iter().find(|entry| entry.name.index == NameIndex::ENCRYPTION);
                if let Some(ValueRef::Stored(value)) = found.map(|entry| entry.value) {
                    *context = Some(value.to_vec());
                }
            }
        }
        Ok(())
    }

    /// The first inode to reach a block checks and claims it.
    fn check_shared_block(
        &self,
        ino: InodeNo,
        block: BlockNo,
    ) -> Result<XattrBlockState, CheckError> {
        let mut region = XattrRegion::Block(Vec::new());
        let state = self.verify_shared_block(ino, block, &mut region)?;
        if let XattrRegion::Block(findings) = region
            && !findings.is_empty()
        {
            self.xattr_blocks.report_later(block, findings);
        }
        Ok(state)
    }

    fn verify_shared_block(
        &self,
        ino: InodeNo,
        block: BlockNo,
        region: &mut XattrRegion,
    ) -> Result<XattrBlockState, CheckError> {
        let mut bytes = self.store.read(block)?;
        let mut state = XattrBlockState::default();
        let entries = match xattr::verify_block(&bytes, block, self.geometry) {
            Ok(()) | Err(FormatError::Corrupt { flaw: Flaw::Checksum { .. }, .. }) => {
                xattr::decode_block(&bytes, block, self.geometry)
            }
            Err(error) => Err(error),
        };
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                if let Some(value) = self.value_without_feature(&error)? {
                    self.should_set_ea_feature(ino, value, region)?;
                    state.is_sound = self.must_restart(); // checked once the feature is known
                }
                return Ok(state);
            }
        };
        let mut counts = XattrCounts::default();
        let mut mends = Vec::new();
        self.check_entries(ino, &entries, &mut counts, &mut None, &mut mends, region)?;
        // A name has a prefix and a hash; e2fsck checks them in blocks only.
        let is_hashed = |entry: &XattrRef<'_>| entry.hash_matches() && entry.has_hash();
        if entries.iter().any(|entry| entry.name.index.0 == 0) {
            return Ok(state);
        }
        if let Some(entry) = entries.iter().find(|entry| !is_hashed(entry)) {
            state.bad_hash = Some(entry.hash);
            return Ok(state);
        }
        state.is_sound = true;
        state.stored = RawXattrHeader::from_block(&bytes, block)?.h_refcount.get();
        state.ea_bytes = counts.ea_clusters;
        state.ea_inodes = counts.ea_inodes;
        if !mends.is_empty() {
            let kept = mended(&entries, &mends);
            if xattr::encode_block(kept.iter(), state.stored, &mut bytes).is_ok() {
                xattr::seal_block(&mut bytes, block, self.geometry);
                self.store.write(block, &bytes)?;
            }
        } else if xattr::verify_block(&bytes, block, self.geometry).is_err() {
            let finding = Finding::new(Code::EaBlockChecksum).inode(ino).block(block);
            if self.should_fix_value(finding, region)? {
                xattr::seal_block(&mut bytes, block, self.geometry);
                self.store.write(block, &bytes)?;
            }
        }
        let cluster = self.blocks.cluster_of(block).0;
        self.blocks.claim(cluster..cluster + 1, &self.budget);
        Ok(state)
    }

    /// How many inodes refer to each block of attributes.
    pub(super) fn check_xattr_references(&self) -> Result<(), CheckError> {
        let blocks: &XattrBlocks = &self.xattr_blocks;
        for (lowest, findings) in blocks.take_findings() {
            for finding in findings {
                self.report(finding.inode(lowest))?;
            }
        }
        for (block, known) in blocks.all() {
            if !known.is_sound || known.stored == known.met || known.met == 0 {
                continue;
            }
            let finding = Finding::new(Code::EaBlockRefcount)
                .block(block)
                .found(u64::from(known.stored))
                .expected(u64::from(known.met));
            if self.should_fix(finding)? {
                let mut bytes = self.store.read(block)?;
                bytes[4..8].copy_from_slice(&known.met.to_le_bytes());
                xattr::seal_block(&mut bytes, block, self.geometry);
                self.store.write(block, &bytes)?;
            }
        }
        Ok(())
    }

    /// An encrypted inode has a context that says how.
    fn check_encryption(
        &self,
        visit: &mut Visit<'_>,
        context: Option<Vec<u8>>,
    ) -> Result<(), CheckError> {
        if visit.ino < self.geometry.first_inode && visit.ino != InodeNo::ROOT {
            return Ok(());
        }
        let Some(context) = context else {
            if self.should_fix(visit.finding(Code::EncryptWithoutContext))? {
                visit.inode.flags.remove(InodeFlags::ENCRYPT);
                visit.dirty = true;
            }
            return Ok(());
        };
        // Version 1: modes, flags, key descriptor, then 16 bytes of nonce; version 2 has a longer
        // key identifier.
        let policy_len = match (context.first(), context.len()) {
            (Some(1), 28) => 12,
            (Some(2), 40) => 24,
            // A version of the future is not a flaw.
            (Some(3..), _) => return Ok(()),
            _ => {
                if self.should_fix(visit.finding(Code::EncryptionCorrupt))? {
                    self.clear_visited(visit)?;
                }
                return Ok(());
            }
        };
        // Needed by the entries of directories: the policies of the directory and of the inode,
        // which are compared in its window.
        if visit.inode.is_dir() || self.inodes.is_in_window(visit.ino) {
            self.budget.take(2 * size_of::<(InodeNo, u32)>());
            self.policies.note(visit.ino, &context[..policy_len]);
        }
        Ok(())
    }

    /// The bytes of a small file, holes as zeros, at most `limit` of them.
    pub(crate) fn read_content(
        &self,
        ino: InodeNo,
        inode: &Inode,
        limit: u64,
    ) -> Result<Vec<u8>, CheckError> {
        let size = inode.size.min(limit) as usize;
        let block_len = self.geometry.block_len();
        let mut bytes = vec![0; size.next_multiple_of(block_len)];
        let map = self.read_map(ino, inode)?;
        for extent in map.extents.iter().filter(|extent| !extent.is_unwritten) {
            for at in 0..u64::from(extent.len) {
                let start = usize::try_from(extent.block.0 + at)
                    .ok()
                    .and_then(|block| block.checked_mul(block_len))
                    .filter(|start| *start < bytes.len());
                let Some(start) = start else { break };
                self.store.read_into(
                    BlockNo(extent.start.0 + at),
                    &mut bytes[start..start + block_len],
                )?;
            }
        }
        bytes.truncate(size);
        Ok(bytes)
    }

    /// Takes back what an inode's attributes refer to, before it is cleared.
    pub(crate) fn release_xattrs(&self, ino: InodeNo, record: &[u8]) -> Result<(), CheckError> {
        let Ok(decoded) = Inode::decode(record, ino, self.geometry) else { return Ok(()) };
        let mut values = Vec::new();
        if decoded.extra_isize > 0
            && let Ok(space) = inode::xattr_area(record, ino, self.geometry)
            && let Ok(entries) = xattr::decode_inode(space, ino, self.geometry)
        {
            values.extend(entries.iter().filter_map(|entry| ea_inode_of(entry)));
        }
        let block = decoded.file_acl;
        if block.0 != 0
            && let Some(known) = self.xattr_blocks.get(block)
        {
            self.xattr_blocks.unrefer(block);
            let mut bytes = self.store.read(block)?;
            if known.met <= 1 {
                if let Ok(entries) = xattr::decode_block(&bytes, block, self.geometry) {
                    values.extend(entries.iter().filter_map(|entry| ea_inode_of(entry)));
                }
                self.release_block(block);
            } else {
                bytes[4..8].copy_from_slice(&(known.met - 1).to_le_bytes());
                xattr::seal_block(&mut bytes, block, self.geometry);
                self.store.write(block, &bytes)?;
            }
        }
        for value in values {
            self.ea_inodes.unrefer(value);
        }
        Ok(())
    }
}

use crate::tables::XattrBlock as XattrBlockState;

fn ea_inode_of(entry: &XattrRef<'_>) -> Option<InodeNo> {
    match entry.value {
        ValueRef::EaInode(value) => Some(value.inode),
        ValueRef::Stored(_) => None,
    }
}
