//! Numbers of errors, as system calls return them, for programs in other languages.

use std::error::Error;
use std::io::{self, ErrorKind};

pub use libc::{
    EACCES, EBUSY, ECANCELED, EEXIST, EFBIG, EINVAL, EIO, EKEYREJECTED, EMLINK, ENAMETOOLONG,
    ENODEV, ENOENT, ENOKEY, ENOMEM, ENOSPC, ENOSYS, ENOTEMPTY, EOPNOTSUPP, EPERM, EROFS, EUCLEAN,
    EXDEV,
};

/// Numbers and the kinds that std has for them. Of several numbers of one kind, the first is that
/// of an error without a number.
const KINDS: [(i32, ErrorKind); 30] = [
    (ENOENT, ErrorKind::NotFound),
    (libc::ENODATA, ErrorKind::NotFound),
    (EPERM, ErrorKind::PermissionDenied),
    (EACCES, ErrorKind::PermissionDenied),
    (ENOKEY, ErrorKind::PermissionDenied),
    (EKEYREJECTED, ErrorKind::PermissionDenied),
    (EEXIST, ErrorKind::AlreadyExists),
    (EBUSY, ErrorKind::ResourceBusy),
    (libc::ENOTDIR, ErrorKind::NotADirectory),
    (libc::EISDIR, ErrorKind::IsADirectory),
    (ENOTEMPTY, ErrorKind::DirectoryNotEmpty),
    (EROFS, ErrorKind::ReadOnlyFilesystem),
    (ENOSPC, ErrorKind::StorageFull),
    (libc::EDQUOT, ErrorKind::QuotaExceeded),
    (EFBIG, ErrorKind::FileTooLarge),
    (EMLINK, ErrorKind::TooManyLinks),
    (ENAMETOOLONG, ErrorKind::InvalidFilename),
    (EXDEV, ErrorKind::CrossesDevices),
    (EINVAL, ErrorKind::InvalidInput),
    (EUCLEAN, ErrorKind::InvalidData),
    (EOPNOTSUPP, ErrorKind::Unsupported),
    (ENOSYS, ErrorKind::Unsupported),
    (ENOMEM, ErrorKind::OutOfMemory),
    (libc::EPIPE, ErrorKind::BrokenPipe),
    (libc::EAGAIN, ErrorKind::WouldBlock),
    (libc::EINTR, ErrorKind::Interrupted),
    (libc::ETIMEDOUT, ErrorKind::TimedOut),
    (libc::ESPIPE, ErrorKind::NotSeekable),
    (libc::ETXTBSY, ErrorKind::ExecutableFileBusy),
    (EIO, ErrorKind::UnexpectedEof),
];

/// The kind of an error by its number: [`ErrorKind::Other`] where std has no kind for it.
pub fn kind(errno: i32) -> ErrorKind {
    // An error of the medium is more than an early end.
    let known = KINDS.iter().find(|(number, _)| *number == errno && errno != EIO);
    known.map_or(ErrorKind::Other, |(_, kind)| *kind)
}

/// The number of an error of the system. An error without one has that of its kind, or else `EIO`.
pub fn of_io(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or_else(|| {
        let known = KINDS.iter().find(|(_, kind)| *kind == error.kind());
        known.map_or(EIO, |(number, _)| *number)
    })
}

/// The number of the system's error that an error was caused by, or else `EIO`.
pub fn of_source(error: &(dyn Error + 'static)) -> i32 {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref() {
            return of_io(error);
        }
        next = error.source();
    }
    EIO
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_those_of_std() {
        for (number, kind_here) in KINDS {
            let of_std = io::Error::from_raw_os_error(number).kind();
            // std has no stable kind for the others.
            if ![libc::ENODATA, ENOKEY, EKEYREJECTED, EUCLEAN, EIO].contains(&number) {
                assert_eq!((number, kind(number)), (number, of_std));
                assert_eq!(kind_here, of_std);
            }
        }
        assert_eq!(kind(EIO), ErrorKind::Other);
    }

    #[test]
    fn an_error_of_the_system_has_its_number_or_that_of_its_kind() {
        assert_eq!(of_io(&io::Error::from_raw_os_error(libc::ENOTTY)), libc::ENOTTY);
        assert_eq!(of_io(&ErrorKind::StorageFull.into()), ENOSPC);
        assert_eq!(of_io(&io::Error::other("something")), EIO);
        let wrapped = io::Error::other(io::Error::from_raw_os_error(ENOENT));
        assert_eq!(of_io(&wrapped), EIO);
    }
}
