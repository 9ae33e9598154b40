//! Values of options that are invalid on their own.

use std::ffi::OsString;
use std::path::PathBuf;

/// An invalid value of one option, or of one relation of the configuration. Texts are as they were
/// given.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ValueError {
    /// `--wait`.
    #[error("{}: invalid number of seconds", .0.display())]
    Wait(OsString),
    /// A value that must be UTF-8.
    #[error("-{letter}: {value:?} is not text")]
    NotText {
        /// The option.
        letter: char,
        /// Its value.
        value: OsString,
    },
    /// `-N`.
    #[error("bad num inodes - {0}")]
    InodeCount(String),
    /// `-r`.
    #[error("bad revision level - {0}")]
    Revision(String),
    /// `-r 0`, as mke2fs 1.47.4 refuses it.
    #[error("-r 0 has been removed: use -E revision=0")]
    RevisionZero,
    /// `-E revision=`.
    #[error("file system revision {0} is too high")]
    RevisionTooHigh(u32),
    /// A size of the file system that is not UTF-8.
    #[error("invalid blocks {0:?}")]
    BlocksNotText(OsString),
    /// A size of the file system that is not a number.
    #[error("invalid blocks '{text}' on device '{}'", device.display())]
    Blocks {
        /// The size.
        text: String,
        /// The device.
        device: PathBuf,
    },
    /// `-b`, or the configuration's `blocksize`.
    #[error("invalid block size - {0}")]
    BlockSize(String),
    /// `-C`, or the configuration's `cluster_size`.
    #[error("invalid cluster size - {0}")]
    ClusterSize(String),
    /// `-I` that is not a number.
    #[error("invalid inode size - {0}")]
    InodeSize(String),
    /// An inode size out of its range, or not a power of two.
    #[error("invalid inode size {size} (min 128/max {max})")]
    InodeSizeRange {
        /// Bytes asked for.
        size: i64,
        /// Bytes of a block.
        max: u32,
    },
    /// `-g` that is not a number.
    #[error("illegal number for blocks per group: {0}")]
    BlocksPerGroup(String),
    /// `-g` that is not a multiple of 8.
    #[error("blocks per group must be multiple of 8")]
    BlocksPerGroupMultiple,
    /// `-g` out of its range.
    #[error("blocks per group count out of range")]
    BlocksPerGroupRange,
    /// `-G` that is not a number.
    #[error("illegal number for flex_bg size: {0}")]
    FlexBgSize(String),
    /// `-G` that is not a power of two.
    #[error("flex_bg size must be a power of 2")]
    FlexBgSizePower,
    /// `-i`.
    #[error("invalid inode ratio {text} (min {min}/max {max})")]
    InodeRatio {
        /// The value.
        text: String,
        /// Minimum, in bytes for each inode.
        min: u32,
        /// Maximum, in bytes for each inode.
        max: u32,
    },
    /// `-m`, or the configuration's `reserved_ratio`.
    #[error("invalid reserved blocks percent - {0}")]
    ReservedRatio(String),
    /// `-U`.
    #[error("could not parse UUID: {0}")]
    Uuid(String),
    /// `-o`.
    #[error("unknown os - {0}")]
    CreatorOs(String),
    /// The variable `SOURCE_DATE_EPOCH`.
    #[error("SOURCE_DATE_EPOCH is not a time: {0}")]
    Epoch(String),
    /// `-E encoding=`.
    #[error("invalid encoding: {0}")]
    Encoding(String),
    /// `-E encoding_flags=`.
    #[error("error: invalid encoding flag: {0}")]
    EncodingFlag(String),
    /// `-E root_selinux=` with a label that no block of attributes can hold.
    #[error("root_selinux is too long")]
    RootSelinux,
    /// A label of lost+found that no block of attributes can hold.
    #[error("lost+found: the label is too long")]
    LostFoundSelinux,
    /// `-J location=` that is not a number.
    #[error("invalid journal location: {0}")]
    JournalLocation(String),
    /// `-J location=` after the last block.
    #[error("journal location {0} is beyond the file system")]
    JournalLocationBeyond(String),
    /// `-E orphan_file_size=`.
    #[error("invalid orphan file size: {0}")]
    OrphanFileSize(String),
    /// `-E resize=` that is not a number.
    #[error("invalid resize parameter: {0}")]
    Resize(String),
    /// `-E resize=` of at most the size of the file system.
    #[error("the resize maximum must be greater than the filesystem size")]
    ResizeTooSmall,
    /// A line of the list of bad blocks (`-l`).
    #[error("{}: block number out of range: {line}", path.display())]
    BadBlock {
        /// The list.
        path: PathBuf,
        /// The line.
        line: String,
    },
    /// A number of the configuration.
    #[error("invalid {relation} in the configuration: {value}")]
    Relation {
        /// Its name.
        relation: String,
        /// Its value.
        value: String,
    },
    /// `hash_alg` of the configuration.
    #[error("unknown hash algorithm {0} in the configuration")]
    HashAlgorithm(String),
    /// `errors` of the configuration.
    #[error("bad error behavior in the configuration - {0}")]
    ConfiguredErrors(String),
    /// `default_mntopts` of the configuration.
    #[error("invalid mount option set: {0}")]
    MountOptions(String),
    /// Names of huge files that are too long or have a slash.
    #[error("invalid hugefiles_dir or hugefiles_name in the configuration")]
    HugeFileNames,
    /// `hugefiles_align_disk` of the configuration.
    #[error("hugefiles_align_disk is not supported: align within the file system")]
    HugeFilesAlignDisk,
}
