//! The damage of files by the findings of a check: which of them may not be whole.

use std::collections::{BTreeMap, BTreeSet};

use extant_check::{Code, Finding};
use extant_ondisk::{BlockNo, InodeNo};

/// Findings after which a file, or a directory, is as it was last written. Any other finding on an
/// inode is damage of it: one that a later version adds is damage until it is in this list.
const HARMLESS: &[Code] = &[
    // The last content of the block, by the log.
    Code::LogCopyCertain,
    // Work that a mount would do: the log, or the list of orphans, says what is wanted.
    Code::OrphanCleared,
    Code::OrphanTruncated,
    // Inodes that are not in use.
    Code::DeletedWithoutDtime,
    Code::UnattachedEmpty,
    // The name is one of those that are lost.
    Code::EntryUnusedInode,
    // Times, which the contents do not depend on.
    Code::RootHasDtime,
    Code::TimeBeyond,
    // Counts of a directory's links, and of the users of an attribute; for links of files see
    // `is_harmless`.
    Code::ManyLinksFeatureMissing,
    Code::EaInodeRefcount,
    // Counts and marks of the group, which the inode of the entry is in use in spite of.
    Code::EntryPastHighWater,
    Code::EntryInUninitGroup,
    // Forms that are valid, or that options ask for.
    Code::ExtentTreeBeyondLimit,
    Code::ExtentTreeTooDeep,
    Code::MapToExtents,
    Code::SharedBlocks,
    Code::DirectoryOptimized,
    Code::FileTypeUnexpected,
    Code::LostFoundMissing,
    // The index of a directory, which has no names: they are in blocks with checksums of their own.
    Code::HtreeRootInvalid,
    Code::HtreeUnordered,
    Code::HtreeRootChecksum,
    Code::HtreeNodeChecksum,
];

/// Findings on a directory that say that a name which is there may be another file's: the records
/// of a block, the block itself, or the whole directory may be others.
const UNCERTAIN_NAMES: &[Code] = &[
    Code::DirBlockChecksum,
    Code::DirBlockWithoutChecksum,
    Code::DirectoryCorrupted,
    Code::InlineDirectoryCorrupted,
    Code::LogCopyPossiblyOlder,
    Code::InodeChecksum,
    Code::InodeBlockChecksum,
    Code::InodeIsCopy,
    Code::LooksLikeDirectory,
    Code::ExtentNodeChecksum,
    Code::ExtentMisplaced,
    Code::MultiplyClaimed,
];

/// Findings that say that transactions of the journal were lost.
const LOST_TRANSACTIONS: &[Code] = &[
    Code::JournalTransactionCorrupt,
    Code::JournalBlockCorrupt,
    Code::JournalRevokeCorrupt,
    Code::JournalReplayFailed,
    Code::JournalDataLeft,
    Code::RecoveryWithoutJournal,
];

/// Findings on a journal that was given up: with a volume that needs it, its transactions are lost.
const LOST_JOURNAL: &[Code] =
    &[Code::JournalInvalid, Code::JournalSuperblockCorrupt, Code::JournalExternal];

/// Codes that were found, each once.
pub(super) type Codes = BTreeSet<Code>;

/// The damage of the files of a volume.
#[derive(Debug, Default)]
pub(super) struct Damage {
    /// By inode.
    inodes: BTreeMap<InodeNo, Codes>,
    /// Names whose files may be others, by directory.
    names: BTreeMap<(InodeNo, Vec<u8>), Codes>,
    /// Blocks that have copies from the log which may be older.
    pub(super) older: BTreeSet<BlockNo>,
}

impl Damage {
    pub(super) fn of<'a>(findings: impl Iterator<Item = &'a Finding>) -> Self {
        let mut damage = Self::default();
        findings.filter(|it| !is_harmless(it)).for_each(|finding| damage.add(finding));
        damage
    }

    fn add(&mut self, finding: &Finding) {
        let (code, subject) = (finding.code, &finding.subject);
        if code == Code::LogCopyPossiblyOlder {
            self.older.extend(subject.block);
        }
        if let (Some(name), Some(dir)) = (&subject.name, subject.dir) {
            self.names.entry((dir, name.clone())).or_default().insert(code);
        }
        // A name is the directory's.
        let owner =
            if subject.name.is_some() { subject.dir } else { subject.inode.or(subject.dir) };
        if let Some(owner) = owner {
            self.inodes.entry(owner).or_default().insert(code);
        }
    }

    /// The damage of an inode, and of a name of it.
    pub(super) fn codes(&self, inode: InodeNo, name: Option<(InodeNo, &[u8])>) -> Codes {
        let mut codes = self.inodes.get(&inode).cloned().unwrap_or_default();
        let key = name.map(|(dir, name)| (dir, name.to_vec()));
        codes.extend(key.and_then(|key| self.names.get(&key)).into_iter().flatten());
        codes
    }
}

/// Whether names in a directory with this damage may be those of other files.
pub(super) fn has_uncertain_names(codes: &Codes) -> bool {
    codes.iter().any(|code| UNCERTAIN_NAMES.contains(code))
}

fn is_harmless(finding: &Finding) -> bool {
    let subject = &finding.subject;
    match finding.code {
        // A name too many may be that of another file. Links without names are those of names that
        // are lost.
        Code::LinkCountWrong => subject.expected <= subject.found,
        code => HARMLESS.contains(&code),
    }
}

/// The codes of what was lost of the journal. `is_needed`: the volume needs the journal, as far as
/// it is known.
pub(super) fn journal<'a>(findings: impl Iterator<Item = &'a Finding>, is_needed: bool) -> Codes {
    let is_lost =
        |code: &Code| LOST_TRANSACTIONS.contains(code) || is_needed && LOST_JOURNAL.contains(code);
    findings.map(|finding| finding.code).filter(is_lost).collect()
}
