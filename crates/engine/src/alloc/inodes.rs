//! Allocation and release of inodes.

use super::allocator::Allocator;
use super::inode_group::{Averages, GROUPS, Known, MAX_EXAMINED, Summary};
use super::{InodeRequest, group};
use crate::edit::Edit;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::{Geometry, GroupNo, InodeNo};
use extant_reader::{Error, MetadataRead};
use extant_runtime::sync::atomic::Ordering;

impl Allocator {
    /// Takes a free inode for an operation.
    pub(crate) fn allocate_inode<E: Edit>(
        &self,
        edit: &mut E,
        request: InodeRequest,
    ) -> Result<InodeNo, Error> {
        if self.free_inodes() == 0 {
            return Err(Error::NoInodes);
        }
        let geometry = edit.geometry().clone();
        let (parent_group, _) =
            geometry.inode_place(request.parent).ok_or(Error::NoSuchInode(request.parent))?;
        let start = if request.is_dir {
            self.group_for_dir(edit, &geometry, parent_group, request.is_top)?
        } else {
            parent_group
        };
        // In the group, in its flex group, and then wherever the next one is.
        let (flex, flex_end) = flex_of(&geometry, start);
        let count = geometry.groups_count;
        for range in [start.0..flex_end, flex..start.0, flex_end..count, 0..flex] {
            let mut next = range.start;
            while let Some(no) = self.with_inodes.next_in(next..range.end) {
                if let Some(number) = self.take_inode_of(edit, no, request.is_dir)? {
                    return Ok(number);
                }
                next = no.0 + 1;
            }
        }
        Err(Error::NoInodes)
    }

    /// A locked group's descriptor, with counts that can be, and from where on there may be free
    /// inodes. Nothing is known of the group from now on.
    fn known_group<S: MetadataRead>(
        &self,
        source: &S,
        no: GroupNo,
    ) -> Result<(GroupDesc, u32), Error> {
        let Known { desc, first_free } = self.known.take(no);
        let desc = match desc {
            Some(desc) => {
                desc.check_counts(no, source.geometry())?;
                desc
            }
            None => group::descriptor(source, no)?,
        };
        Ok((desc, first_free))
    }

    /// Takes the first free inode of a group.
    fn take_inode_of<E: Edit>(
        &self,
        edit: &mut E,
        no: GroupNo,
        is_dir: bool,
    ) -> Result<Option<InodeNo>, Error> {
        let _slot = self.lock(no)?;
        let (mut desc, first_free) = self.known_group(edit, no)?;
        let index = match desc.free_inodes {
            0 => None,
            _ => group::free_inode_from(edit, no, &desc, first_free)?,
        };
        let Some(index) = index else {
            self.with_inodes.remove(no);
            return Ok(None);
        };
        let number = group::take_inode(edit, no, &mut desc, index, is_dir)?;
        self.known.put(no, Known { desc: Some(desc), first_free: index + 1 });
        self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        Ok(Some(number))
    }

    /// Where a directory is looked for first.
    fn group_for_dir<S: MetadataRead>(
        &self,
        source: &S,
        geometry: &Geometry,
        parent: GroupNo,
        is_top: bool,
    ) -> Result<GroupNo, Error> {
        let groups = u64::from(geometry.groups_count);
        // Averages of a group, so they fit.
        let averages = Averages {
            free_inodes: (self.free_inodes() / groups) as u32,
            free_clusters: (self.free_clusters() / groups).min(u64::from(u32::MAX)) as u32,
        };
        let per_flex = geometry.groups_per_flex.max(1);
        let start = if is_top {
            let next = self.next_spread.fetch_add(per_flex, Ordering::Relaxed);
            GroupNo(next % geometry.groups_count)
        } else {
            parent
        };
        let mut at = start;
        for examined in 0..MAX_EXAMINED.max(GROUPS / per_flex) {
            let (first, end) = flex_of(geometry, at);
            let mut summary = Summary::default();
            for no in (first..end).take(GROUPS as usize) {
                summary.add(&group::descriptor(source, GroupNo(no))?);
            }
            let fits = if is_top {
                summary.is_roomy(averages)
            } else {
                summary.is_uncrowded(averages, geometry)
            };
            if fits {
                // Near the parent: in its own group; else with the tables at the flex group's
                // start.
                return Ok(if !is_top && examined == 0 { parent } else { GroupNo(first) });
            }
            at = GroupNo(end % geometry.groups_count);
        }
        Ok(start)
    }

    /// Gives an inode back.
    pub(crate) fn free_inode<E: Edit>(
        &self,
        edit: &mut E,
        inode: InodeNo,
        is_dir: bool,
    ) -> Result<(), Error> {
        let (no, index) = edit.geometry().inode_place(inode).ok_or(Error::NoSuchInode(inode))?;
        let _slot = self.lock(no)?;
        let (mut desc, first_free) = self.known_group(edit, no)?;
        group::give_inode(edit, no, &mut desc, index, is_dir)?;
        self.known.put(no, Known { desc: Some(desc), first_free: first_free.min(index) });
        self.with_inodes.insert(no);
        self.free_inodes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Takes an inode again that was just given back.
    pub(crate) fn retake_inode<E: Edit>(
        &self,
        edit: &mut E,
        inode: InodeNo,
        is_dir: bool,
    ) -> Result<(), Error> {
        let (no, index) = edit.geometry().inode_place(inode).ok_or(Error::NoSuchInode(inode))?;
        let _slot = self.lock(no)?;
        let (mut desc, first_free) = self.known_group(edit, no)?;
        group::retake_inode(edit, no, &mut desc, index, is_dir)?;
        self.known.put(no, Known { desc: Some(desc), first_free });
        self.free_inodes.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The flex group of a group: its first group, and the one after its last.
fn flex_of(geometry: &Geometry, no: GroupNo) -> (u32, u32) {
    let per_flex = geometry.groups_per_flex.max(1);
    let first = no.0 - no.0 % per_flex;
    (first, first.saturating_add(per_flex).min(geometry.groups_count))
}
