//! Errors of the debugger, in the words of e2fsprogs.

use extant_device::DeviceError;
use extant_offline::OfflineError;
use extant_ondisk::FormatError;

/// A structure cannot be read or changed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DebugError {
    /// There is no superblock.
    #[error("Bad magic number in super-block")]
    BadMagic,
    /// A file of e2image was expected.
    #[error("Wrong magic number for Ext2 Image Header")]
    ImageMagic,
    /// Tables that a file of e2image cannot hold.
    #[error("Inode tables too large for this format")]
    TablesTooLarge,
    /// The superblock has another block size than the one that was asked for.
    #[error("Filesystem has unexpected block size")]
    BlockSize,
    /// The superblock has features that only a forced open looks past.
    #[error("Filesystem has unsupported feature(s)")]
    Features,
    /// The superblock has features with which the volume must not be written.
    #[error("Filesystem has unsupported read-only feature(s)")]
    ReadOnlyFeatures,
    /// The superblock's values contradict each other.
    #[error("The ext2 superblock is corrupt")]
    CorruptSuperblock,
    /// A block is past the end of the device.
    #[error("Attempt to read block from filesystem resulted in short read")]
    ShortRead,
    /// The checksum of an inode is wrong.
    #[error("Inode checksum does not match inode")]
    InodeChecksum,
    /// There is no inode of that number.
    #[error("Bad inode number")]
    BadInode,
    /// The inode table lies outside the volume.
    #[error("Missing inode table in group descriptor")]
    MissingTable,
    /// The checksum of a block bitmap is wrong.
    #[error("Block bitmap checksum does not match bitmap")]
    BlockBitmapChecksum,
    /// The checksum of an inode bitmap is wrong.
    #[error("Inode bitmap checksum does not match bitmap")]
    InodeBitmapChecksum,
    /// The checksum of a directory block is wrong.
    #[error("Directory block checksum does not match directory block")]
    DirectoryChecksum,
    /// A directory entry has an impossible length.
    #[error("EXT2 directory corrupted")]
    DirectoryCorrupted,
    /// A directory has no entry of that name.
    #[error("File not found by ext2_lookup")]
    NotFound,
    /// A directory was expected.
    #[error("Ext2 inode is not a directory")]
    NotADirectory,
    /// The header of an extent node is wrong.
    #[error("Corrupt extent header")]
    ExtentHeader,
    /// The checksum of an extent node is wrong.
    #[error("Extent block checksum does not match extent block")]
    ExtentChecksum,
    /// An indirect block lies outside the volume.
    #[error("Illegal indirect block found")]
    IndirectBlock,
    /// The map of a file has a loop.
    #[error("Illegal block number")]
    Loop,
    /// The checksum of an attribute block is wrong.
    #[error("Extended attribute block checksum does not match block")]
    XattrChecksum,
    /// The header of an attribute block is wrong.
    #[error("Extended attribute block has a bad header")]
    XattrHeader,
    /// A file has no attribute of that name.
    #[error("Extended attribute key not found")]
    XattrNotFound,
    /// The attribute's name has an unknown prefix or is too long.
    #[error("Invalid argument")]
    InvalidArgument,
    /// The attributes do not fit.
    #[error("Insufficient space to store extended attribute data")]
    XattrRoom,
    /// No block is free.
    #[error("Could not allocate block in ext2 filesystem")]
    NoBlock,
    /// No inode is free.
    #[error("Could not allocate inode in ext2 filesystem")]
    NoInode,
    /// The name is taken.
    #[error("File exists")]
    Exists,
    /// The entries of a directory are in its inode.
    #[error("entries of a directory with inline data are not changed")]
    InlineDirectory,
    /// The data of a file are in its inode.
    #[error("No block for an inode with inline data")]
    InlineFile,
    /// A logical block is past what the map can have.
    #[error("Ext2 file too big")]
    TooBig,
    /// Another error of the format.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Another error of the editor.
    #[error(transparent)]
    Offline(OfflineError),
}

impl From<OfflineError> for DebugError {
    fn from(error: OfflineError) -> Self {
        match error {
            OfflineError::Device(error) => Self::Device(error),
            OfflineError::Format(error) => Self::Format(error),
            OfflineError::NoSpace(extant_offline::NoSpace::Blocks { .. }) => Self::NoBlock,
            OfflineError::NoSpace(extant_offline::NoSpace::Inodes) => Self::NoInode,
            other => Self::Offline(other),
        }
    }
}
