//! Errors of a volume as errno, for all operations alike.

use crate::error::Error;
use rustix::io::Errno;

impl Error {
    /// The number that a call which ends in this error returns to the program.
    pub fn errno(&self) -> Errno {
        match self {
            Error::Format(format) if format.is_corruption() => Errno::UCLEAN,
            // A device that is too small was truncated: reads past its end fail.
            Error::DeviceTooSmall { .. } => Errno::UCLEAN,
            Error::Format(_) | Error::NotSupported(_) => Errno::OPNOTSUPP,
            Error::Journal(_) if self.is_late() => Errno::ROFS,
            Error::Io(_) | Error::Journal(_) => Errno::IO,
            Error::NeedsRecovery | Error::ReadOnly => Errno::ROFS,
            Error::InUse(_) => Errno::BUSY,
            Error::NoSpace | Error::NoInodes | Error::DirectoryFull | Error::NoXattrRoom => {
                Errno::NOSPC
            }
            Error::QuotaExceeded => Errno::DQUOT,
            Error::Exists => Errno::EXIST,
            Error::FileTooLarge => Errno::FBIG,
            Error::NotEmpty => Errno::NOTEMPTY,
            Error::CrossesBoundary => Errno::XDEV,
            Error::TooManyLinks => Errno::MLINK,
            Error::NotPermitted(_) | Error::LinksDirectory => Errno::PERM,
            Error::Invalid(_) | Error::Options(_) | Error::WrongFileType => Errno::INVAL,
            Error::NotFound => Errno::NOENT,
            Error::NotADirectory => Errno::NOTDIR,
            Error::IsADirectory => Errno::ISDIR,
            Error::SymlinkLoop => Errno::LOOP,
            Error::NameTooLong => Errno::NAMETOOLONG,
            Error::NoXattr => Errno::NODATA,
            Error::XattrNameTooLong => Errno::RANGE,
            Error::XattrTooLarge => Errno::NOSPC,
            Error::Encrypted(_) => Errno::NOKEY,
            // A name whose inode is not in use: the kernel returns the same error.
            Error::FreeInode(_) | Error::NoSuchInode(_) => Errno::UCLEAN,
        }
    }
}
