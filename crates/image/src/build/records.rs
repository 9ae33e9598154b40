//! Inode records of the tree, encoded when their part of a table is written.

use extant_ondisk::dirent::{DirFormat, NewEntry};
use extant_ondisk::extent::ROOT_SIZE;
use extant_ondisk::inline_data::{IN_I_BLOCK, InlineDirPacker};
use extant_ondisk::inode::{self, DeviceNumber, Inode, InodeFlags, MANY_LINKS};
use extant_ondisk::time::Timestamp;
use extant_ondisk::xattr::{Xattr, XattrName, encode_inode};
use extant_ondisk::{BlockNo, InodeNo};

use super::attributes::entries_of;
use super::error::BuildError;
use super::placement::{Mapping, dir_ranges, ea_ranges};
use super::plan::Plan;
use super::requirements::{DirRequirements, Storage};
use crate::source::{FileTime, NodeId, NodeKind, OtherTimes, XattrSetId};

/// ext4's count of links of a directory ends here (`dir_nlink`).
const MAX_DIR_LINKS: u32 = 65_000;
/// Bytes of a record before the fields that `i_extra_isize` counts.
const BASE: usize = 128;

/// The times of an inode: of an image that takes them all from the source, the creation is the
/// volume's; else all are that of the modification.
fn set_times(inode: &mut Inode, mtime: FileTime, others: Option<OtherTimes>, created: u64) {
    let stamp = |time: FileTime| Timestamp::new(time.seconds, time.nanoseconds);
    let created = FileTime { seconds: created.cast_signed(), nanoseconds: 0 };
    let (access, change, created) = match others {
        Some(OtherTimes { access, change }) => (access, change, created),
        None => (mtime, mtime, mtime),
    };
    (inode.atime, inode.ctime) = (stamp(access), stamp(change));
    (inode.mtime, inode.crtime) = (stamp(mtime), Some(stamp(created)));
}

/// Encodes records, one thread's worth at a time.
pub(super) struct Recorder<'p> {
    plan: &'p Plan<'p>,
    /// The attributes of the set met last, whole for inline data or only those in the inode: most
    /// neighbours share them.
    last_set: Option<(XattrSetId, bool, Vec<Xattr>)>,
}

impl<'p> Recorder<'p> {
    pub(super) fn new(plan: &'p Plan<'p>) -> Self {
        Self { plan, last_set: None }
    }

    /// The record of a node, sealed, into zeroed bytes.
    pub(super) fn node(
        &mut self,
        number: InodeNo,
        id: NodeId,
        record: &mut [u8],
    ) -> Result<(), BuildError> {
        let plan = self.plan;
        let (tree, volume) = (plan.requirements.tree, &plan.volume);
        let node = tree.node(id);
        let mut inode = volume.new_inode(node.mode(), 1);
        (inode.uid, inode.gid) = (node.uid(), node.gid());
        set_times(&mut inode, node.mtime(), tree.other_times(id), volume.identity.time);
        inode.size = node.size();
        let links = plan.requirements.links(id);
        // A directory's links that cannot be counted are 1.
        inode.links = match node.kind() {
            NodeKind::Directory if links >= MAX_DIR_LINKS => MANY_LINKS,
            _ => links as u16, // at most 65,000, checked in the demand
        };
        let inline = match node.kind() {
            NodeKind::Directory => self.directory(number, &mut inode)?,
            NodeKind::Regular => self.regular(number, id, &mut inode)?,
            NodeKind::Symlink => {
                self.symlink(number, id, &mut inode);
                None
            }
            NodeKind::CharDevice | NodeKind::BlockDevice => {
                let device = node.device().map(|d| DeviceNumber { major: d.major, minor: d.minor });
                inode.i_block = device.and_then(DeviceNumber::encode).unwrap_or([0; ROOT_SIZE]);
                None
            }
            NodeKind::Fifo | NodeKind::Socket => None,
        };
        self.finish(number, id, inode, inline, record)
    }

    /// Sets the space, writes fields and attributes, seals.
    fn finish(
        &mut self,
        number: InodeNo,
        id: NodeId,
        mut inode: Inode,
        inline: Option<Xattr>,
        record: &mut [u8],
    ) -> Result<(), BuildError> {
        let plan = self.plan;
        let set = plan.requirements.tree.node(id).xattr_set();
        if let Some(block) = plan.requirements.attributes.block_of(id) {
            let cluster = plan.placement.attributes + block as u64;
            inode.file_acl = BlockNo(plan.space.block(cluster));
        }
        inode.set_space(&plan.volume.geometry, plan.space_of(id));
        inode.encode_into(record, &plan.volume.geometry);
        let space = &mut record[BASE + usize::from(inode.extra_isize)..];
        let others = self.in_inode(set, inline.is_some())?;
        encode_inode(inline.iter().chain(others), space)
            .expect("the demand found that the attributes fit");
        inode::seal(record, number, &plan.volume.geometry);
        Ok(())
    }

    /// The attributes that are stored in the inode: all of them if it has inline data.
    fn in_inode(&mut self, set: XattrSetId, is_inline: bool) -> Result<&[Xattr], BuildError> {
        if set == XattrSetId::NONE {
            return Ok(&[]);
        }
        let known = self.last_set.take();
        let entries = match known.filter(|known| (known.0, known.1) == (set, is_inline)) {
            Some((_, _, entries)) => entries,
            None if is_inline => entries_of(self.plan.requirements.tree, set)?,
            None => self.plan.divided(set)?.in_inode,
        };
        Ok(&self.last_set.insert((set, is_inline, entries)).2)
    }

    /// Returns the attribute of inline data where there is one.
    fn directory(&self, number: InodeNo, inode: &mut Inode) -> Result<Option<Xattr>, BuildError> {
        let plan = self.plan;
        let requirements = &plan.requirements;
        let Some((dir, start)) = plan.directory(number) else { return Ok(None) };
        if let Some(len) = dir.inline {
            return Ok(Some(self.inline_directory(dir, len, inode)));
        }
        inode.size = u64::from(dir.plan.blocks()) * requirements.shape.block_size;
        if dir.plan.is_indexed {
            inode.flags |= InodeFlags::INDEX;
        }
        self.map(
            number,
            &Mapping::new(&requirements.shape, &plan.space, start, dir_ranges(dir)),
            inode,
        );
        Ok(None)
    }

    fn inline_directory(&self, dir: &DirRequirements, len: u32, inode: &mut Inode) -> Xattr {
        let requirements = &self.plan.requirements;
        let mut items = Vec::new();
        requirements.items(dir.node, &mut items);
        let entries = items.iter().map(|item| NewEntry::new(item.inode, item.file_type, item.name));
        let format =
            DirFormat::new(&self.plan.volume.geometry, requirements.numbers.of(dir.node), 0);
        let mut value = vec![0; len as usize];
        let fits =
            InlineDirPacker::new(&format).pack(dir.parent, &mut inode.i_block, &mut value, entries);
        assert!(fits, "the demand found that the directory fits its inode");
        inode.flags |= InodeFlags::INLINE_DATA;
        inode.size = (IN_I_BLOCK + value.len()) as u64;
        Xattr::new(XattrName::inline_data(), value)
    }

    fn regular(
        &self,
        number: InodeNo,
        id: NodeId,
        inode: &mut Inode,
    ) -> Result<Option<Xattr>, BuildError> {
        let plan = self.plan;
        match plan.requirements.storage(id) {
            Storage::Inline(len) => {
                let mut bytes = vec![0; inode.size as usize]; // small, by the requirements
                let content = plan.requirements.tree.open(id)?;
                content.read_exact_at(&mut bytes, 0)?;
                content.check_unchanged()?;
                let (first, rest) = bytes.split_at(bytes.len().min(IN_I_BLOCK));
                inode.i_block[..first.len()].copy_from_slice(first);
                inode.flags |= InodeFlags::INLINE_DATA;
                debug_assert_eq!(rest.len(), len);
                Ok(Some(Xattr::new(XattrName::inline_data(), rest.to_vec())))
            }
            Storage::Blocks => {
                if let Some(mapping) = plan.file(id) {
                    self.map(number, &mapping, inode);
                }
                Ok(None)
            }
            Storage::InIBlock => {
                let nothing =
                    Mapping::new(&plan.requirements.shape, &plan.space, 0, std::iter::empty());
                self.map(number, &nothing, inode);
                Ok(None)
            }
        }
    }

    fn symlink(&self, number: InodeNo, id: NodeId, inode: &mut Inode) {
        let plan = self.plan;
        if let Some(start) = plan.placement.symlink(&plan.requirements, id) {
            self.map(number, &plan.one_block(start), inode);
            return;
        }
        let target = plan.requirements.tree.symlink_target(id);
        inode.i_block[..target.len()].copy_from_slice(target);
    }

    fn map(&self, number: InodeNo, mapping: &Mapping<'_>, inode: &mut Inode) {
        inode.i_block = mapping.write_map(number, &self.plan.volume.geometry, |_, _| ());
        if self.plan.requirements.shape.has_extents {
            inode.flags |= InodeFlags::EXTENTS;
        }
    }

    /// The record of a value with an inode of its own, sealed.
    pub(super) fn ea_file(&self, index: usize, record: &mut [u8]) -> Result<(), BuildError> {
        let plan = self.plan;
        let number = plan.requirements.ea_inode(index);
        let file = &plan.requirements.attributes.ea_files[index];
        let value = plan.requirements.attributes.ea_value(plan.requirements.tree, file)?;
        let mut inode = plan.volume.new_inode(0o100_600, 1);
        inode.size = u64::from(file.size);
        inode.flags |= InodeFlags::EA_INODE;
        let start = plan.placement.ea_files[index];
        let ranges = ea_ranges(&plan.requirements.shape, file.size);
        let mapping = Mapping::new(&plan.requirements.shape, &plan.space, start, ranges);
        self.map(number, &mapping, &mut inode);
        let hash = extant_ondisk::xattr::value_hash(&value, plan.volume.geometry.checksum_seed);
        // The value's hash lies where others keep their time of reading.
        inode.atime = Timestamp::new(i64::from(hash.cast_signed()), 0);
        inode.set_ea_inode_references(file.references);
        inode.set_space(&plan.volume.geometry, mapping.blocks());
        inode.encode_into(record, &plan.volume.geometry);
        inode::seal(record, number, &plan.volume.geometry);
        Ok(())
    }
}
