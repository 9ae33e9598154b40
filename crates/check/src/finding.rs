//! Findings of a check: one table of codes, and findings as data.

use extant_ondisk::{BlockNo, FileBlock, GroupNo, InodeNo};
use std::fmt;

/// How bad a finding is, and what preening (`-p`) does with it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Nothing is wrong: information, never an error, no exit code.
    Note,
    /// Safe to repair unasked: the repair loses no content of a file, and no name that leads to a
    /// file. Preening repairs it.
    Safe,
    /// Content or names may be at stake: preening stops here.
    Damage,
    /// Nothing more can be done with the volume.
    Fatal,
}

/// The pass that finds it; 0 is the work before pass 1, 6 the work after pass 5.
pub type Pass = u8;

/// A row of the table of findings.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The code's own name, as JSON shows it.
    pub name: &'static str,
    /// The pass that finds it.
    pub pass: Pass,
    /// How bad it is.
    pub severity: Severity,
    /// One sentence; `{inode}`, `{block}`, `{file_block}`, `{group}`, `{name}`, `{dir}`, `{found}`
    /// and `{expected}` are replaced by the fields of the finding.
    pub text: &'static str,
    /// The prompt that proposes the repair: `Fix`, `Clear`, ... Empty where no repair is
    /// proposed.
    pub prompt: &'static str,
    /// The answer for a user who only presses return, and for `-y` and `-p`. It is no if the repair
    /// could destroy data written by a newer program.
    pub default: bool,
}

macro_rules! findings {
    ($($(#[$doc:meta])* $name:ident: $pass:literal, $severity:ident, $text:literal, $prompt:literal, $default:literal;)*) => {
        /// A kind of finding. The numbers are not kept from version to version; the names are.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        #[non_exhaustive]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// Every code there is.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The row of the table.
            pub fn row(self) -> &'static Row {
                match self {
                    $(Self::$name => {
                        const ROW: Row = Row {
                            name: stringify!($name), pass: $pass, severity: Severity::$severity, text: $text,
                            prompt: $prompt, default: $default,
                        };
                        &ROW
                    })*
                }
            }
        }
    };
}

include!("finding_table.rs");

impl Code {
    /// Whether its repair counts for the exit code "errors corrected". As in e2fsck, these do not
    /// count: work that the options ask for, descriptors repaired before the passes (their contents
    /// are checked again there), and the superblock's copy of the journal's map.
    pub fn is_correction(self) -> bool {
        !matches!(
            self,
            Self::GroupDescChecksum
                | Self::GroupUninitWithoutFeature
                | Self::TimeInFuture
                | Self::LastGroupUninit
                | Self::MapToExtents
                | Self::SharedBlocks
                | Self::SharedBlocksDone
                | Self::DirectoryOptimized
                | Self::FileTypeMissing
                | Self::JournalBackup
        )
    }

    /// Whether pass 1 finds it when all inodes are checked.
    pub(crate) fn is_found_after_all_inodes(self) -> bool {
        matches!(
            self,
            Self::EaBlockRefcount
                | Self::MultiplyClaimed
                | Self::SharedBlocks
                | Self::CloneFailed
                | Self::ResizeInodeInvalid
        )
    }

    /// Whether its repair leaves tables that describe the volume, and no other decision depends on
    /// when it is done: no scan is needed to see what it left.
    pub(crate) fn is_local(self) -> bool {
        matches!(
            self,
            Self::DeletedWithoutDtime
                | Self::InUseWithDtime
                | Self::InodeSizeWrong
                | Self::InodeBlocksWrong
                | Self::InodeChecksum
                | Self::InodeBlockChecksum
                | Self::TimeBeyond
                | Self::EaBlockChecksum
                | Self::EaBlockRefcount
                | Self::ExtentNodeInvalid
                | Self::ExtentNodeChecksum
                | Self::ExtentInvalidStart
                | Self::ExtentTreeTooDeep
                | Self::EntryUnusedInode
                | Self::EntryNeverUsedInode
                | Self::FileTypeWrong
                | Self::FileTypeMissing
                | Self::FileTypeUnexpected
                | Self::DirBlockChecksum
                | Self::DirBlockWithoutChecksum
                | Self::HtreeRootInvalid
                | Self::HtreeUnordered
                | Self::HtreeRootChecksum
                | Self::HtreeNodeChecksum
                | Self::LostFoundMissing
                | Self::UnconnectedDirectory
                | Self::DotDotWrong
                | Self::DirectoryOptimized
                | Self::UnattachedEmpty
                | Self::UnattachedInode
                | Self::LinkCountWrong
                | Self::BlockBitmapWrong
                | Self::InodeBitmapWrong
                | Self::BlockBitmapPadding
                | Self::InodeBitmapPadding
                | Self::BlockBitmapChecksum
                | Self::InodeBitmapChecksum
                | Self::HighWaterWrong
                | Self::GroupFreeBlocksWrong
                | Self::GroupFreeInodesWrong
                | Self::GroupDirectoriesWrong
                | Self::FreeBlocksTotalWrong
                | Self::FreeInodesTotalWrong
        )
    }

    /// Whether preening reports it and does not repair it: it is harmless, or may be intended by
    /// the user. An old copy from the log is not left: without it, safe repairs would clear the
    /// names that lead to lost inodes, and the copy would be of no use to a later run.
    pub fn is_left_by_preening(self) -> bool {
        matches!(
            self,
            Self::SpecialImmutable | Self::ExtentTreeTooDeep | Self::ExtentTreeBeyondLimit
        )
    }

    /// Whether a check without repairs that finds it exits with "errors left". For the other codes
    /// e2fsck reports them and continues with the values of the backup, or with the value that the
    /// field should have.
    pub fn counts_when_left(self) -> bool {
        let is_passed_over = matches!(
            self,
            Self::SuperblockInvalid
                | Self::GroupDescChecksum
                | Self::FeaturesOfRevisionZero
                | Self::QuotaNumberNeedless
                | Self::ExtraIsizeBad
                | Self::HurdFiletype
                | Self::ChecksumFeaturesBoth
                | Self::ChecksumSeedNeedless
                | Self::JournalHasData
                | Self::RecoveryWithoutJournal
                | Self::GroupUninitWithoutFeature
                | Self::ReservedGdtNeedless
                | Self::ResizeInodeNotInUse
                | Self::ExtentNodeLevel
                | Self::TimeBeyond
                | Self::FileTypeMissing
                | Self::LostFoundNotDirectory
                | Self::LostFoundEncrypted
                | Self::LostFoundInline
        );
        self.row().severity > Severity::Note && !is_passed_over
    }
}

/// The facts of a finding. Unused ones stay at their default.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct Subject {
    /// The inode it is about.
    pub inode: Option<InodeNo>,
    /// The directory it lies in.
    pub dir: Option<InodeNo>,
    /// A physical block.
    pub block: Option<BlockNo>,
    /// A logical block.
    pub file_block: Option<FileBlock>,
    /// A block group.
    pub group: Option<GroupNo>,
    /// A name, as found.
    pub name: Option<Vec<u8>>,
    /// A number as found.
    pub found: Option<u64>,
    /// The number that it should be.
    pub expected: Option<u64>,
    /// Anything else, ready to be shown.
    pub detail: Option<String>,
}

/// Something that a check found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// The kind of the finding.
    pub code: Code,
    /// Its facts.
    pub subject: Subject,
}

macro_rules! with {
    ($($(#[$doc:meta])* $name:ident($type:ty);)*) => {
        impl Finding {
            $($(#[$doc])* #[must_use] pub fn $name(mut self, $name: $type) -> Self {
                self.subject.$name = Some($name);
                self
            })*
        }
    };
}
with! {
    /// Adds the inode.
    inode(InodeNo);
    /// Adds the directory.
    dir(InodeNo);
    /// Adds the physical block.
    block(BlockNo);
    /// Adds the logical block.
    file_block(FileBlock);
    /// Adds the group.
    group(GroupNo);
    /// Adds the name.
    name(Vec<u8>);
    /// Adds the number found.
    found(u64);
    /// Adds the number expected.
    expected(u64);
    /// Adds words.
    detail(String);
}

impl Finding {
    /// A finding without facts.
    pub fn new(code: Code) -> Self {
        Self { code, subject: Subject::default() }
    }

    /// The order in which findings are reported: by pass, then by location. It does not depend on
    /// threads.
    pub fn order(&self) -> impl Ord + use<> {
        let subject = &self.subject;
        (
            self.code.row().pass,
            subject.group,
            subject.dir.or(subject.inode),
            subject.file_block,
            subject.inode,
            subject.block,
            self.code,
            subject.name.clone(),
            subject.found,
            subject.detail.clone(),
        )
    }
}

/// Tells the path of a directory, where it is known.
pub type PathOf<'a> = &'a dyn Fn(InodeNo) -> Option<String>;

/// A finding as it is shown with the paths of directories.
struct WithPaths<'a>(&'a Finding, PathOf<'a>);

impl fmt::Display for WithPaths<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.show(self.1, f)
    }
}

impl Finding {
    /// The text with paths where e2fsck has them, and with numbers of directories where no path is
    /// known.
    pub fn with_paths(&self, path_of: PathOf<'_>) -> String {
        WithPaths(self, path_of).to_string()
    }

    fn show(&self, path_of: PathOf<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.code.row().text;
        while let Some((before, after)) = rest.split_once('{') {
            f.write_str(before)?;
            let (fact, after) = after.split_once('}').unwrap_or((after, ""));
            self.subject.show(fact, path_of, f)?;
            rest = after;
        }
        f.write_str(rest)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.show(&|_| None, f)
    }
}

impl Subject {
    fn show(&self, fact: &str, path_of: PathOf<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn or_unknown<T: fmt::Display>(fact: Option<T>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match fact {
                Some(fact) => fact.fmt(f),
                None => f.write_str("?"),
            }
        }
        match fact {
            "inode" => or_unknown(self.inode, f),
            "dir" => or_unknown(self.dir, f),
            "where" => self.show_directory(self.dir, path_of, f),
            "itself" => self.show_directory(self.inode, path_of, f),
            "entry" => match self.dir.and_then(path_of) {
                Some(path) => {
                    f.write_str(path.trim_end_matches('/'))?;
                    f.write_str("/")?;
                    self.show("name", path_of, f)
                }
                None => {
                    f.write_str("entry '")?;
                    self.show("name", path_of, f)?;
                    f.write_str("' of directory ")?;
                    self.show("dir", path_of, f)
                }
            },
            "old_dir" => match self.dir.and_then(path_of) {
                Some(path) => f.write_str(&path),
                None => self.show("dir", path_of, f),
            },
            "found_dir" | "expected_dir" => {
                let number = if fact == "found_dir" { self.found } else { self.expected };
                let inode = number.and_then(|number| u32::try_from(number).ok()).map(InodeNo);
                match inode.and_then(|inode| Some((inode, path_of(inode)?))) {
                    Some((inode, path)) => write!(f, "{path} ({inode})"),
                    None => or_unknown(number, f),
                }
            }
            "block" => or_unknown(self.block, f),
            "file_block" => or_unknown(self.file_block, f),
            "group" => or_unknown(self.group, f),
            "name" => or_unknown(self.name.as_deref().map(|name| name.escape_ascii()), f),
            "found" => or_unknown(self.found, f),
            "expected" => or_unknown(self.expected, f),
            "detail" => or_unknown(self.detail.as_deref(), f),
            other => unreachable!("the table of findings names no fact {other}"),
        }
    }

    fn show_directory(
        &self,
        directory: Option<InodeNo>,
        path_of: PathOf<'_>,
        f: &mut fmt::Formatter<'_>,
    ) -> fmt::Result {
        match directory.map(|directory| (directory, path_of(directory))) {
            Some((directory, Some(path))) => write!(f, "{path} ({directory})"),
            Some((directory, None)) => write!(f, "directory {directory}"),
            None => f.write_str("directory ?"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_shows_only_facts_that_exist() {
        for &code in Code::ALL {
            let shown = Finding::new(code).to_string();
            assert!(!shown.is_empty() && !shown.contains('{'), "{code:?}: {shown}");
            assert!(!code.row().prompt.contains('{'), "{code:?}: a question shows no fact");
        }
    }

    #[test]
    fn a_finding_shows_its_facts() {
        let finding =
            Finding::new(Code::InodeSizeWrong).inode(InodeNo(13)).found(15360).expected(12288);
        assert_eq!(finding.to_string(), "Inode 13, i_size is 15360, should be 12288.");
    }

    #[test]
    fn a_directory_has_its_path_where_that_is_known() {
        let path_of = |directory: InodeNo| match directory.0 {
            2 => Some("/".to_owned()),
            12 => Some("/test".to_owned()),
            _ => None,
        };
        let unused = Finding::new(Code::EntryUnusedInode).inode(InodeNo(14)).name(b"file".to_vec());
        let text = |finding: &Finding| finding.with_paths(&path_of);
        let end = "has deleted/unused inode 14.";
        let known = unused.clone().dir(InodeNo(12));
        assert_eq!(text(&known), format!("Entry 'file' in /test (12) {end}"));
        assert_eq!(known.to_string(), format!("Entry 'file' in directory 12 {end}"));
        let unknown = unused.dir(InodeNo(13));
        assert_eq!(text(&unknown), format!("Entry 'file' in directory 13 {end}"));

        let mode = Finding::new(Code::InodeModeInvalid).inode(InodeNo(14)).name(b"file".to_vec());
        let mode = mode.detail("00".to_owned());
        let end = "has invalid mode (00).";
        let rows = [(2, "/file"), (12, "/test/file"), (13, "entry 'file' of directory 13")];
        for (directory, place) in rows {
            let finding = mode.clone().dir(InodeNo(directory));
            assert_eq!(text(&finding), format!("Inode 14 ({place}) {end}"));
        }
        let up = Finding::new(Code::DotDotWrong).inode(InodeNo(12)).found(0).expected(2);
        assert_eq!(text(&up), "'..' in /test (12) is 0, should be / (2).");
        assert_eq!(up.to_string(), "'..' in directory 12 is 0, should be 2.");
    }
}
