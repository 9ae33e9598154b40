//! Files of the host: the kernel tells their extents, by FIEMAP, or block by block by FIBMAP.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use extant::inspect::{Extent, fragments};
use extant::rooms::device::{
    ExtentsQuery, FileExtent, block_size_of, device_block_of, file_extents,
};
use rustix::fs::{IFlags, OFlags};
use rustix::io::Errno;

use super::rows::{Row, Rows, expected};
use crate::failure::Failure;
use crate::say;
use crate::session::Session;

/// The type of ext2, ext3 and ext4 in statfs(2).
const EXT_MAGIC: u64 = 0xef53;
/// Blocks that the inode of a block-mapped file names itself.
const DIRECT: u64 = 12;
/// Flags of an extent in linux/fiemap.h by the names of filefrag, and `hole` of ext4's cache.
const FLAGS: [(u32, &str); 12] = [
    (0x1, "last"),
    (UNKNOWN, "unknown_loc"),
    (0x4, "delalloc"),
    (0x8, "encoded"),
    (0x80, "encrypted"),
    (NOT_ALIGNED, "not_aligned"),
    (0x200, "inline"),
    (0x400, "tail_packed"),
    (0x800, "unwritten"),
    (0x1000, "merged"),
    (0x2000, "shared"),
    (HOLE, "hole"),
];
const UNKNOWN: u32 = 0x2;
const NOT_ALIGNED: u32 = 0x100;
const HOLE: u32 = 0x0800_0000;

/// The names of all flags.
pub(super) fn flag_names() -> String {
    FLAGS.map(|(_, name)| name).join(",")
}

/// Whether an operand names a file of the host and nothing inside an image.
pub(super) fn is_host_file(operand: &OsStr) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let names_image = operand.as_bytes().windows(2).any(|pair| pair == b":/");
    !names_image || Path::new(operand).symlink_metadata().is_ok()
}

/// A file, with what the system says of its file system.
struct HostFile<'a> {
    name: &'a Path,
    file: File,
    size: u64,
    block_size: u64,
    /// Number of block groups, if ext2 or ext3 maps it by blocks.
    groups: Option<u64>,
    /// Inodes of the file system.
    inodes: u64,
    kind: u64,
    device: u64,
}

/// The failure of a system call, which is the exit code of filefrag.
fn failed(name: &Path, what: &str, errno: Errno) -> Failure {
    let code = u8::try_from(errno.raw_os_error()).unwrap_or(1);
    let error = std::io::Error::from(errno);
    let failure = match what {
        "" => Failure::at(name, describe(&error)),
        what => Failure::at(name, format_args!("{what}: {}", describe(&error))),
    };
    failure.with_code(code)
}

fn describe(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

impl<'a> HostFile<'a> {
    fn open(name: &'a Path) -> Result<Self, Failure> {
        // A fifo is not waited for.
        let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC).bits().cast_signed();
        let at = |errno| failed(name, "", errno);
        let of_io = |error: std::io::Error| at(Errno::from_io_error(&error).unwrap_or(Errno::IO));
        let file = File::options().read(true).custom_flags(flags).open(name).map_err(of_io)?;
        let found = file.metadata().map_err(of_io)?;
        let system = rustix::fs::fstatfs(&file).map_err(at)?;
        let block_size = match block_size_of(&file) {
            Ok(size) if size > 0 => size.into(),
            _ => u64::try_from(system.f_bsize).unwrap_or(1).max(1),
        };
        let kind = system.f_type as u64;
        let is_mapped_by_blocks = kind == EXT_MAGIC
            && rustix::fs::ioctl_getflags(&file)
                .is_ok_and(|flags| !flags.contains(IFlags::from_bits_retain(EXTENTS_FLAG)));
        let groups = system.f_blocks.div_ceil(block_size * 8).max(1);
        Ok(Self {
            name,
            file,
            size: found.len(),
            block_size,
            groups: is_mapped_by_blocks.then_some(groups),
            inodes: system.f_files,
            kind,
            device: found.dev(),
        })
    }

    fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block_size)
    }
}

/// EXT4_EXTENTS_FL of the inode's flags.
const EXTENTS_FLAG: u32 = 0x0008_0000;

/// The options of filefrag, as far as they concern files of the host.
pub(super) struct HostFiles<'a> {
    pub(super) names: &'a [OsString],
    pub(super) verbose: bool,
    pub(super) extents: bool,
    /// Bytes of the unit; `None` for the blocks of the file system.
    pub(super) unit: Option<u64>,
    pub(super) is_hexadecimal: bool,
    pub(super) sync: bool,
    pub(super) xattrs: bool,
    pub(super) fibmap: bool,
    pub(super) show_cache: bool,
    pub(super) preload_cache: bool,
}

impl HostFiles<'_> {
    /// Shows the files, one after the other; a failure does not end it.
    pub(super) fn show(&self, session: &mut Session) -> Result<(), Failure> {
        let mut device = None;
        for name in self.names {
            let name = Path::new(name);
            let shown = HostFile::open(name).and_then(|file| {
                let is_new = device.replace(file.device) != Some(file.device);
                self.show_file(&file, is_new, session)
            });
            if let Err(failure) = shown {
                session.error(failure)?;
            }
        }
        Ok(())
    }

    fn show_file(
        &self,
        file: &HostFile<'_>,
        is_new: bool,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let has_rows = self.extents || self.show_cache;
        let unit = self.unit.unwrap_or(file.block_size);
        let rows = Rows {
            shift: unit.ilog2(),
            is_hexadecimal: self.is_hexadecimal,
            is_cache: self.show_cache,
            size: file.size,
        };
        let name = file.name.display();
        if self.verbose || has_rows {
            if is_new {
                say!(session, "Filesystem type is: {:x}", file.kind)?;
                if let Some(groups) = file.groups {
                    say!(session, "Filesystem cylinder groups approximately {groups}")?;
                }
            }
            let (size, unit) = (file.size, 1_u64 << rows.shift);
            let blocks = file.blocks().saturating_mul(file.block_size) >> rows.shift;
            let plural = if file.blocks() == 1 { "" } else { "s" };
            say!(
                session,
                "File size of {name} is {size} ({blocks} block{plural} of {unit} bytes)"
            )?;
        }
        let query = ExtentsQuery {
            syncs: self.sync,
            xattrs: self.xattrs,
            fills_cache: self.preload_cache,
            shows_cache: self.show_cache,
        };
        let is_special = self.xattrs || self.preload_cache || self.show_cache;
        let answer = match self.fibmap && !is_special {
            true => Err(Errno::OPNOTSUPP),
            false => file_extents(&file.file, query),
        };
        let count = match answer {
            Ok(found) => self.show_extents(&found, rows, session)?,
            Err(errno) if is_special => {
                let call = if self.show_cache { "EXT4_IOC_GET_ES_CACHE" } else { "FS_IOC_FIEMAP" };
                return Err(failed(file.name, call, errno));
            }
            Err(_) => self.show_blocks(file, rows, session)?,
        };
        let plural = if count == 1 { "" } else { "s" };
        let perfect = file.groups.filter(|_| self.fibmap && !is_special).map_or(0, |groups| {
            let inode_share = file.inodes / 8 / groups;
            let group = (file.block_size * 8).saturating_sub(inode_share + 3).max(1);
            file.blocks() / group + 1
        });
        let hint = match perfect {
            1.. if perfect < count as u64 => {
                let plural = if perfect == 1 { "" } else { "s" };
                format!(", perfection would be {perfect} extent{plural}")
            }
            _ => String::new(),
        };
        say!(session, "{name}: {count} extent{plural} found{hint}")
    }

    fn show_extents(
        &self,
        found: &[FileExtent],
        rows: Rows,
        session: &mut Session,
    ) -> Result<usize, Failure> {
        let extents: Vec<_> = found.iter().map(extent_of).collect();
        if (self.verbose || self.extents || self.show_cache) && !extents.is_empty() {
            say!(session, "{}", rows.title())?;
            let places = expected(&extents);
            for (at, (extent, expected)) in extents.iter().zip(places).enumerate() {
                let is_nowhere = found[at].flags & (UNKNOWN | HOLE) != 0;
                let expected = expected.filter(|_| !is_nowhere);
                say!(session, "{}", rows.line(at, &Row { extent, expected, is_nowhere }))?;
            }
        }
        Ok(fragments(&extents))
    }

    /// Asks for one block after the other; the number of runs.
    fn show_blocks(
        &self,
        file: &HostFile<'_>,
        rows: Rows,
        session: &mut Session,
    ) -> Result<usize, Failure> {
        let size = file.block_size;
        if self.sync {
            rustix::fs::fsync(&file.file).map_err(|errno| failed(file.name, "fsync", errno))?;
        }
        let (mut count, mut before) = (0, None);
        let mut run: Option<Run> = None;
        for block in 0..file.blocks() {
            let number = u32::try_from(block).map_err(|_| Errno::FBIG);
            let place = number.and_then(|number| device_block_of(&file.file, number));
            let place = place.map_err(|errno| no_blocks(file.name, self.fibmap, errno))?;
            let place = u64::from(place);
            if place == 0 {
                continue;
            }
            let next = before.map(|last: u64| last + 1 + pointers_before(block, file));
            before = Some(place);
            match &mut run {
                Some(run) if next == Some(place) && run.logical + run.length == block => {
                    run.length += 1;
                }
                _ => {
                    if let Some(run) = &run {
                        self.show_run(run, (count, size), rows, session)?;
                        run.tell_jump(self.verbose || self.extents, session)?;
                        count += 1;
                    }
                    let expected = run.as_ref().map(|run| run.physical + block - run.logical);
                    let expected = expected.filter(|expected| *expected != place);
                    run = Some(Run { logical: block, physical: place, length: 1, expected });
                }
            }
        }
        let Some(run) = run else { return Ok(0) };
        self.show_run(&run, (count, size), rows, session)?;
        Ok(count + 1)
    }

    fn show_run(
        &self,
        run: &Run,
        (at, size): (usize, u64),
        rows: Rows,
        session: &mut Session,
    ) -> Result<(), Failure> {
        if !self.extents {
            return Ok(());
        }
        if at == 0 {
            say!(session, "{}", rows.title())?;
        }
        let extent = Extent {
            logical: run.logical * size,
            physical: run.physical * size,
            length: run.length * size,
            flags: vec!["merged"],
            is_in_bytes: false,
        };
        let expected = run.expected.map(|expected| expected * size);
        say!(session, "{}", rows.line(at, &Row { extent: &extent, expected, is_nowhere: false }))
    }
}

/// A run of blocks that FIBMAP gave.
struct Run {
    logical: u64,
    physical: u64,
    length: u64,
    expected: Option<u64>,
}

impl Run {
    fn tell_jump(&self, is_told: bool, session: &mut Session) -> Result<(), Failure> {
        let Some(expected) = self.expected.filter(|_| is_told) else { return Ok(()) };
        let (block, place) = (self.logical, self.physical);
        say!(session, "Discontinuity: Block {block} is at {place} (was {expected})")
    }
}

/// Number of blocks of pointers that ext2 would put in front of a block of data.
fn pointers_before(block: u64, file: &HostFile<'_>) -> u64 {
    let pointers = file.block_size / 4;
    let begins = |base: u64, every: u64| {
        block.checked_sub(base).is_some_and(|past| past.is_multiple_of(every))
    };
    if file.groups.is_none() {
        return 0;
    }
    let (double, triple) = (pointers * pointers, pointers * pointers * pointers);
    u64::from(begins(DIRECT, pointers))
        + u64::from(begins(DIRECT + pointers, double))
        + u64::from(begins(DIRECT + pointers + double, triple))
}

fn no_blocks(name: &Path, is_forced: bool, errno: Errno) -> Failure {
    let code = u8::try_from(errno.raw_os_error()).unwrap_or(1);
    let failure = match errno {
        Errno::PERM => Failure::at(name, "root privileges required for FIBMAP"),
        Errno::INVAL | Errno::NOTTY if is_forced => Failure::at(name, "not supported: FIBMAP"),
        Errno::INVAL | Errno::NOTTY => Failure::at(name, "not supported: FIBMAP and FIEMAP"),
        errno => return failed(name, "FIBMAP", errno),
    };
    failure.with_code(code)
}

fn extent_of(found: &FileExtent) -> Extent {
    let is_set = |(bit, _): &&(u32, &'static str)| found.flags & bit != 0;
    Extent {
        logical: found.logical,
        physical: found.physical,
        length: found.length,
        flags: FLAGS.iter().filter(is_set).map(|(_, name)| *name).collect(),
        is_in_bytes: found.flags & NOT_ALIGNED != 0,
    }
}
