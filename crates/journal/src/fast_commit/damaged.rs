//! The replay of fast commits on a damaged volume: what cannot be replayed is left out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use extant_ondisk::jbd2::FastCommitRecord;
use extant_ondisk::{BlockNo, InodeNo};

use super::file::File;
use super::scan::FastCommits;
use super::volume::Volume;
use crate::JournalError;

/// The result of a replay.
pub(crate) struct Replayed {
    /// The blocks that change, in ascending order.
    pub(crate) changed: Vec<(BlockNo, Vec<u8>)>,
    /// Inodes that their tables have lost, and that were taken from fast commits.
    pub(crate) restored: Vec<InodeNo>,
    /// Inodes with changes that were left out, and why.
    pub(crate) left_out: Vec<(InodeNo, String)>,
}

/// The state of a replay on a damaged volume.
pub(super) struct Damaged {
    /// The first record of each inode that is logged.
    logged: HashMap<InodeNo, Vec<u8>>,
    pub(super) restored: BTreeSet<InodeNo>,
    pub(super) left_out: BTreeMap<InodeNo, String>,
}

impl Damaged {
    pub(super) fn new(found: &FastCommits) -> Self {
        let mut logged = HashMap::new();
        for record in found.records() {
            if let FastCommitRecord::Inode(inode, record) = record {
                logged.entry(inode).or_insert_with(|| record.to_vec());
            }
        }
        Self { logged, restored: BTreeSet::new(), left_out: BTreeMap::new() }
    }

    /// An inode in use that its table has lost, as a fast commit holds it.
    pub(super) fn restore(
        &mut self,
        volume: &mut Volume<'_>,
        number: InodeNo,
        error: JournalError,
    ) -> Result<File, JournalError> {
        let Some(logged) = self.logged.get(&number) else { return Err(error) };
        if is_of_device(&error) || !volume.is_inode_used(number)? {
            return Err(error);
        }
        let file = File::of_logged(volume, number, logged)?;
        self.restored.insert(number);
        Ok(file)
    }
}

/// Whether a device failed: that is no damage of the volume.
pub(super) fn is_of_device(error: &JournalError) -> bool {
    matches!(error, JournalError::Device(_))
}

/// The inode whose changes a record has.
pub(super) fn inode_of(record: &FastCommitRecord<'_>) -> InodeNo {
    match record {
        FastCommitRecord::Inode(inode, _)
        | FastCommitRecord::AddRange(inode, _)
        | FastCommitRecord::DelRange(inode, ..) => *inode,
        FastCommitRecord::Create(dentry)
        | FastCommitRecord::Link(dentry)
        | FastCommitRecord::Unlink(dentry) => dentry.inode,
        FastCommitRecord::Pad | FastCommitRecord::Tail(..) | FastCommitRecord::Head(..) => {
            InodeNo(0)
        }
    }
}
