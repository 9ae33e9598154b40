//! Names of file types.

use extant::rooms::ondisk::inode::FileType;

/// The name of a file type.
pub(crate) fn type_name(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "file",
        FileType::Directory => "directory",
        FileType::Symlink => "symlink",
        FileType::BlockDevice => "block device",
        FileType::CharDevice => "character device",
        FileType::Fifo => "fifo",
        FileType::Socket => "socket",
    }
}
