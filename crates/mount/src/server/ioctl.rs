//! Flags and projects of files: what lsattr, chattr and their like ask by ioctl.

use extant_ondisk::InodeNo;
use extant_ondisk::inode::InodeFlags;
use rustix::io::Errno;

use super::{Caller, Server};

/// `_IOR('f', 1, long)` and `_IOW('f', 2, long)`: the flags as stored.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `_IOR('v', 1, long)`: the generation.
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
/// `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`: flags, three figures of which the third is the project, one more, padding (linux/fs.h).
const FSXATTR_LEN: usize = 28;
const FSX_PROJECT_AT: usize = 12;

/// Flags that only the file system itself knows about.
const HIDDEN: InodeFlags =
    InodeFlags::IMAGIC.union(InodeFlags::HUGE_FILE).union(InodeFlags::EA_INODE);

/// Flags of `struct fsxattr`, and what they are in an inode.
const FSX_FLAGS: [(u32, InodeFlags); 6] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJECT_INHERIT),
];

impl Server {
    /// Answers an ioctl with the bytes that it gives back.
    ///
    /// # Errors
    /// ENOTTY for one that is not known, EINVAL for too few bytes, and as the calls of [`Volume`](extant_volume::Volume).
    pub fn ioctl(
        &self,
        file: InodeNo,
        command: u32,
        input: &[u8],
        by: Caller,
    ) -> Result<Vec<u8>, Errno> {
        match command {
            FS_IOC_GETFLAGS => {
                let flags = self.with(|volume| Ok(volume.inode(file)?.flags))?;
                Ok((flags - HIDDEN).bits().to_le_bytes().to_vec())
            }
            FS_IOC_SETFLAGS => {
                let flags = InodeFlags::from_bits_retain(word(input, 0)?);
                self.with(|volume| Ok(volume.set_flags(file, flags)?))?;
                Ok(Vec::new())
            }
            FS_IOC_GETVERSION => {
                let generation = self.with(|volume| Ok(volume.inode(file)?.generation))?;
                Ok(generation.to_le_bytes().to_vec())
            }
            FS_IOC_FSGETXATTR => {
                let inode = self.with(|volume| Ok(volume.inode(file)?))?;
                let mut bytes = vec![0; FSXATTR_LEN];
                let flags = FSX_FLAGS.iter().filter(|(_, flag)| inode.flags.contains(*flag));
                let flags = flags.fold(0, |all, (bit, _)| all | bit);
                bytes[..4].copy_from_slice(&u32::to_le_bytes(flags));
                bytes[FSX_PROJECT_AT..FSX_PROJECT_AT + 4]
                    .copy_from_slice(&inode.project.unwrap_or(0).to_le_bytes());
                Ok(bytes)
            }
            FS_IOC_FSSETXATTR => {
                self.set_fsxattr(file, word(input, 0)?, word(input, FSX_PROJECT_AT)?, by)?;
                Ok(Vec::new())
            }
            _ => Err(Errno::NOTTY),
        }
    }

    fn set_fsxattr(
        &self,
        file: InodeNo,
        wanted: u32,
        project: u32,
        by: Caller,
    ) -> Result<(), Errno> {
        if FSX_FLAGS.iter().fold(wanted, |rest, (bit, _)| rest & !bit) != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        self.with(|volume| {
            let inode = volume.inode(file)?;
            let mut flags = inode.flags;
            for (bit, flag) in FSX_FLAGS {
                flags.set(flag, wanted & bit != 0);
            }
            if inode.project.unwrap_or(0) != project {
                volume.set_project(file, project, self.is_privileged(by))?;
            }
            volume.set_flags(file, flags)?;
            Ok(())
        })
    }
}

/// Four bytes of what a program gave, in the host's order: programs and server are on one machine, which is little-endian
/// wherever the sandbox runs.
fn word(input: &[u8], at: usize) -> Result<u32, Errno> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Errno::INVAL)?;
    Ok(u32::from_le_bytes(*bytes))
}
