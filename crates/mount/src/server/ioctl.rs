//! Ioctls: flags and projects of files (lsattr, chattr), the volume's label, discarding of free
//! space (fstrim), growth, freezing and shutting down.

use extant_engine::Shutdown;
use extant_ondisk::InodeNo;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_reader::VolumeRead;
use rustix::io::Errno;

use super::{Caller, GrowReply, Server};
use crate::transport::{
    EXTANT_IOC_FREEZE, EXTANT_IOC_GROW, EXTANT_IOC_SHUTDOWN, EXTANT_IOC_THAW, GROW_LEN,
};

/// Our own, as FUSE carries them.
const SHUTDOWN: u32 = EXTANT_IOC_SHUTDOWN;
const FREEZE: u32 = EXTANT_IOC_FREEZE;
const THAW: u32 = EXTANT_IOC_THAW;
const GROW: u32 = EXTANT_IOC_GROW;

/// `_IOR('f', 1, long)` and `_IOW('f', 2, long)`: the flags as stored.
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
/// `_IOR('v', 1, long)` and `_IOW('v', 2, long)`: the generation.
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_SETVERSION: u32 = 0x4008_7602;
/// `_IOR('X', 31, struct fsxattr)` and `_IOW('X', 32, struct fsxattr)`.
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;
/// Bytes of `struct fsxattr`: flags, three figures of which the third is the project, one more,
/// padding (linux/fs.h).
const FSXATTR_LEN: usize = 28;
const FSX_PROJECT_AT: usize = 12;

/// `_IOR(0x94, 49, char[256])`: the label, followed by zeroes (linux/fs.h).
const FS_IOC_GETFSLABEL: u32 = 0x8100_9431;
const LABEL_LEN: usize = 256;
/// `_IOWR('X', 121, struct fstrim_range)`: start, length and minimum length, in bytes; the reply's
/// length is the number of bytes discarded.
const FITRIM: u32 = 0xc018_5879;
const TRIM_LENGTH_AT: usize = 8;
const TRIM_LEAST_AT: usize = 16;

/// `_IOR('X', 125, __u32)`: the end of all writing. Declared as if it gave the mode back, so that
/// none arrives.
const FS_IOC_SHUTDOWN: u32 = 0x8004_587d;

/// `_IOW('f', 16, __u64)`, EXT4_IOC_RESIZE_FS (`admin-guide/ext4.rst`): the number of blocks that
/// the volume grows to.
const EXT4_RESIZE: u32 = 0x4008_6610;

/// Whether a command changes the volume, so that it waits for one that is frozen.
pub(crate) fn is_changing_ioctl(command: u32) -> bool {
    matches!(
        command,
        FS_IOC_SETFLAGS | FS_IOC_SETVERSION | FS_IOC_FSSETXATTR | FITRIM | EXT4_RESIZE | GROW
    )
}

/// Whether one takes long.
pub(crate) fn is_long_ioctl(command: u32) -> bool {
    matches!(command, FITRIM | SHUTDOWN | FREEZE | EXT4_RESIZE | GROW)
}

/// Flags that only the file system itself knows about.
const HIDDEN: InodeFlags =
    InodeFlags::IMAGIC.union(InodeFlags::HUGE_FILE).union(InodeFlags::EA_INODE);

/// Flags of `struct fsxattr`, and the flags of an inode that they mean.
const FSX_FLAGS: [(u32, InodeFlags); 6] = [
    (0x8, InodeFlags::IMMUTABLE),
    (0x10, InodeFlags::APPEND),
    (0x20, InodeFlags::SYNC),
    (0x40, InodeFlags::NOATIME),
    (0x80, InodeFlags::NODUMP),
    (0x200, InodeFlags::PROJECT_INHERIT),
];

/// Flags that only root changes.
const ROOT_ONLY: InodeFlags =
    InodeFlags::IMMUTABLE.union(InodeFlags::APPEND).union(InodeFlags::JOURNAL_DATA);

/// Whether a caller may set a file's flags, and its project: root and its owner may, and some only
/// root. Kernels from 5.13 on check that themselves, except for the flag of journalled data.
fn check_flags(file: &Inode, wanted: InodeFlags, by: Caller) -> Result<(), Errno> {
    let is_barred = by.uid != file.uid || (file.flags ^ wanted).intersects(ROOT_ONLY);
    if by.uid != 0 && is_barred { Err(Errno::PERM) } else { Ok(()) }
}

impl Server {
    /// Carries out an ioctl; returns its output bytes.
    ///
    /// # Errors
    /// ENOTTY for one that is not known, EINVAL for too few bytes, and as the calls of
    /// [`Engine`](extant_engine::Engine).
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
                self.with(|volume| {
                    check_flags(&*volume.inode(file)?, flags, by)?;
                    Ok(volume.engine()?.set_flags(file, flags)?)
                })?;
                Ok(Vec::new())
            }
            FS_IOC_GETVERSION => {
                let generation = self.with(|volume| Ok(volume.inode(file)?.generation))?;
                Ok(generation.to_le_bytes().to_vec())
            }
            FS_IOC_SETVERSION => {
                let generation = word(input, 0)?;
                self.with(|volume| {
                    let inode = volume.inode(file)?;
                    check_flags(&inode, inode.flags, by)?;
                    Ok(volume.engine()?.set_generation(file, generation)?)
                })?;
                Ok(Vec::new())
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
            FS_IOC_GETFSLABEL => {
                let mut label = self.with(|volume| Ok(volume.superblock().label().to_vec()))?;
                label.resize(LABEL_LEN, 0);
                Ok(label)
            }
            FITRIM => self.trim(input, by),
            FS_IOC_SHUTDOWN => {
                Self::check_owns_mount(by)?;
                self.shutdown(Shutdown::NoLogFlush)?;
                Ok(Vec::new())
            }
            SHUTDOWN => {
                Self::check_owns_mount(by)?;
                self.shutdown(shutdown_of(word(input, 0)?).ok_or(Errno::INVAL)?)?;
                Ok(Vec::new())
            }
            FREEZE => {
                Self::check_owns_mount(by)?;
                self.freeze()?;
                Ok(Vec::new())
            }
            THAW => {
                Self::check_owns_mount(by)?;
                self.thaw()?;
                Ok(Vec::new())
            }
            EXT4_RESIZE => {
                self.grow(long(input, 0)?, by)?;
                Ok(Vec::new())
            }
            GROW => {
                let request = input.first_chunk::<GROW_LEN>().ok_or(Errno::NOTTY)?;
                self.grow_and_reply(&GrowReply::decode(request), by)
            }
            _ => Err(Errno::NOTTY),
        }
    }

    /// For root, and for whose mount it is.
    fn trim(&self, input: &[u8], by: Caller) -> Result<Vec<u8>, Errno> {
        Self::check_owns_mount(by)?;
        let start = long(input, 0)?;
        let (length, least) = (long(input, TRIM_LENGTH_AT)?, long(input, TRIM_LEAST_AT)?);
        let trimmed = self.with(|volume| {
            let geometry = volume.geometry();
            let block_size = u64::from(geometry.block_size);
            let is_possible = start < geometry.blocks_count * block_size
                && length >= block_size
                && least <= u64::from(geometry.blocks_per_group) * block_size;
            if !is_possible {
                return Err(Errno::INVAL.into());
            }
            Ok(volume.engine()?.trim(start..start.saturating_add(length), least)?)
        })?;
        let mut answer = input.to_vec();
        answer[TRIM_LENGTH_AT..TRIM_LEAST_AT].copy_from_slice(&trimmed.to_le_bytes());
        Ok(answer)
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
            check_flags(&inode, flags, by)?;
            if inode.project.unwrap_or(0) != project {
                volume.engine()?.set_project(file, project, self.is_privileged(by))?;
            }
            volume.engine()?.set_flags(file, flags)?;
            Ok(())
        })
    }
}

/// The modes of `FS_IOC_SHUTDOWN`, each at its number.
const MODES: [Shutdown; 3] = [Shutdown::Default, Shutdown::LogFlush, Shutdown::NoLogFlush];

/// The mode of a number.
fn shutdown_of(number: u32) -> Option<Shutdown> {
    MODES.get(usize::try_from(number).ok()?).copied()
}

/// The number of a mode.
pub(crate) fn shutdown_mode(how: Shutdown) -> u32 {
    // Three at most.
    MODES.iter().take_while(|mode| **mode != how).count() as u32
}

/// Four bytes from a program, in the host's order: programs and server are on one machine, which is
/// little-endian wherever the sandbox runs.
fn word(input: &[u8], at: usize) -> Result<u32, Errno> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Errno::INVAL)?;
    Ok(u32::from_le_bytes(*bytes))
}

/// Eight bytes, likewise.
fn long(input: &[u8], at: usize) -> Result<u64, Errno> {
    let bytes = input.get(at..).and_then(|rest| rest.first_chunk()).ok_or(Errno::INVAL)?;
    Ok(u64::from_le_bytes(*bytes))
}
