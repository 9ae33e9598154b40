//! `write`, `mkdir`, `symlink`, `mknod`, `ln`, `unlink`, `rm` and `rmdir`: names and what they
//! name, changed by the engine as a mount changes them.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use extant::debug::{DebugError, DirWalk};
use extant::rooms::engine::ops::FallocateMode;
use extant::rooms::ondisk::inode::{DeviceNumber, FileType};
use extant::rooms::reader::Error;
use extant::{Credentials, InodeNo, Volume, VolumeRead};

use super::host::host_error;
use super::shell::{Done, Refusal, Shell, at_file, failed, refuse};
use super::words::{Word, number, text};

/// Bytes of a file that are copied at once.
const AT_ONCE: usize = 1 << 20;
/// Symlinks that are followed on the way to a file.
const MAX_LINKS: u32 = 40;
/// The owner of new files, who has what permissions they ask for.
const OWNER: Credentials = Credentials { umask: 0, ..Credentials::ROOT };

/// An error of the engine in the words of e2fsprogs, where it has some.
pub(super) fn engine_text(error: &Error) -> String {
    match error {
        Error::NotFound => DebugError::NotFound.to_string(),
        Error::Exists => "Ext2 file already exists".to_owned(),
        Error::NotADirectory => DebugError::NotADirectory.to_string(),
        Error::NoXattr => DebugError::XattrNotFound.to_string(),
        Error::NoSpace => DebugError::NoBlock.to_string(),
        Error::NoInodes => DebugError::NoInode.to_string(),
        Error::NoXattrRoom => DebugError::XattrRoom.to_string(),
        error => error.to_string(),
    }
}

/// The inode of a path while the engine has the volume.
fn resolve(
    volume: &Volume,
    (root, cwd): (InodeNo, InodeNo),
    path: &[u8],
    links: &mut u32,
) -> Result<InodeNo, Error> {
    let mut at = if path.starts_with(b"/") { root } else { cwd };
    let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    while let Some(name) = names.next() {
        if name == b".." && at == root {
            continue;
        }
        let dir = at;
        at = volume.lookup(dir, name)?.inode;
        if names.peek().is_some() && volume.inode(at)?.file_type() == FileType::Symlink {
            *links += 1;
            if *links > MAX_LINKS {
                return Err(Error::NotFound);
            }
            let target = volume.read_link(at)?;
            at = resolve(volume, (root, dir), &target, links)?;
        }
    }
    Ok(at)
}

impl Shell<'_> {
    /// The volume in the engine's hands, and the inode that a word names in it.
    pub(super) fn live_inode(
        &mut self,
        words: &[Word],
        spec: &[u8],
    ) -> Result<(&Volume, InodeNo), Refusal> {
        let image = self.writable_live(words)?;
        let numbered = image.numbered(spec);
        if !image.is_live()
            && let Err(DebugError::NotFound) = image.inode_of(spec)
            && !image.folds_case()
        {
            return Err(at_file(spec, DebugError::NotFound));
        }
        let places = (image.root, image.cwd);
        let volume = image.live().map_err(|why| refuse(words, why))?;
        let inode = match numbered {
            Some(number) => number.map_err(|error| at_file(spec, error))?,
            None => resolve(volume, places, spec, &mut 0)
                .map_err(|error| at_file(spec, engine_text(&error)))?,
        };
        Ok((volume, inode))
    }

    /// The inode that a word names, whether or not the engine has the volume.
    fn open_inode(&mut self, words: &[Word], spec: &[u8]) -> Result<InodeNo, Refusal> {
        let image = self.writable_live(words)?;
        match image.is_live() || image.folds_case() {
            true => Ok(self.live_inode(words, spec)?.1),
            false => image.inode_of(spec).map_err(|error| at_file(spec, error)),
        }
    }

    /// The volume in the engine's hands, the directory of a new or old name, and the name in it.
    fn live_name<'w>(
        &mut self,
        words: &[Word],
        path: &'w [u8],
    ) -> Result<(&Volume, InodeNo, &'w [u8]), Refusal> {
        let (dir, name) = split_path(path);
        if dir == b"." {
            let image = self.writable_live(words)?;
            let cwd = image.cwd;
            let volume = image.live().map_err(|why| refuse(words, why))?;
            return Ok((volume, cwd, name));
        }
        let (volume, dir) = self.live_inode(words, dir)?;
        Ok((volume, dir, name))
    }
}

/// The kind of file at a path, as far as that is known before the engine opens the volume.
enum Seen {
    Unknown,
    Absent,
    /// A directory, or something else.
    Directory,
    Other,
}

impl Shell<'_> {
    /// Looks for a name before the engine has the volume: a request that cannot be done then
    /// writes nothing. What is not sure is for the engine.
    fn seen(&mut self, words: &[Word], path: &[u8]) -> Result<Seen, Refusal> {
        let image = self.writable_live(words)?;
        if image.is_live() || image.folds_case() {
            return Ok(Seen::Unknown);
        }
        let (dir, name) = split_path(path);
        let dir = match dir {
            b"." => Ok(image.cwd),
            dir => image.inode_of(dir),
        };
        let volume = &image.volume;
        let found = match dir.and_then(|dir| volume.lookup(dir, name)) {
            Ok(found) => found,
            Err(DebugError::NotFound) => return Ok(Seen::Absent),
            Err(_) => return Ok(Seen::Unknown),
        };
        Ok(match volume.inode(found) {
            Ok(record) if record.is_dir() => Seen::Directory,
            Ok(_) => Seen::Other,
            Err(_) => Seen::Unknown,
        })
    }

    /// Whether a directory is known to have names, before the engine has the volume.
    fn has_names(&mut self, words: &[Word], path: &[u8]) -> Result<bool, Refusal> {
        let image = self.writable_live(words)?;
        let mut has_names = false;
        let walked = image.inode_of(path).and_then(|inode| image.volume.inode(inode));
        let walked = walked.and_then(|record| {
            image.volume.walk_dir(&record, DirWalk::default(), &mut |item| {
                has_names |= item.inode != 0 && item.name != b"." && item.name != b"..";
                ControlFlow::Continue(())
            })
        });
        Ok(walked.is_ok() && has_names)
    }

    /// Refuses a name that is there.
    fn expect_new(&mut self, words: &[Word], path: &[u8]) -> Done {
        match self.seen(words, path)? {
            Seen::Directory | Seen::Other => Err(refused(words, &Error::Exists)),
            Seen::Unknown | Seen::Absent => Ok(()),
        }
    }
}

/// The directory of a path, and the name in it.
fn split_path(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(end) => (&path[..end], &path[end + 1..]),
        None => (b".", path),
    }
}

/// `COMMAND: error `, as for a refusal of the library of e2fsprogs.
fn refused(words: &[Word], error: &Error) -> Refusal {
    // The blank is theirs.
    refuse(words, format_args!("{} ", engine_text(error)))
}

pub(super) fn write(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, source, target] = words else {
        return Err(refuse(words, "Usage: write <native file> <new file>"));
    };
    shell.expect_new(words, target)?;
    let path = OsStr::from_bytes(source);
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?, file)));
    let (found, file) = opened.map_err(|error| {
        failed(words, host_error(&error), format_args!("opening \"{}\" to copy", text(source)))
    })?;
    let (volume, dir, name) = shell.live_name(words, target)?;
    if volume.lookup(dir, name).is_ok() {
        return Err(refused(words, &Error::Exists));
    }
    // Mode bits are twelve.
    let permissions = (found.permissions().mode() & 0o7777) as u16;
    let number =
        volume.tmpfile(dir, permissions, &OWNER).map_err(|error| refused(words, &error))?.number;
    // It gets its name when it is whole.
    let copied = copy(volume, number, file).and_then(|()| {
        let named = volume.fsync(number).and_then(|()| volume.link(number, dir, name));
        named.map(drop).map_err(|error| Copied::Volume(Box::new(error)))
    });
    let released = volume.release(number, 1);
    copied.map_err(|error| match error {
        Copied::Host(error) => {
            failed(words, host_error(&error), format_args!("reading \"{}\"", text(source)))
        }
        Copied::Volume(error) => refused(words, &error),
    })?;
    released.map_err(|error| refused(words, &error))?;
    shell.print(format!("Allocated inode: {number}\n"))
}

enum Copied {
    Host(io::Error),
    Volume(Box<Error>),
}

/// Copies the contents of a file of the host. Blocks of zeros become holes.
fn copy(volume: &Volume, number: InodeNo, mut file: File) -> Result<(), Copied> {
    let volume_error = |error| Copied::Volume(Box::new(error));
    let block = volume.geometry().block_len();
    let mut buffer = vec![0; AT_ONCE];
    let mut at = 0;
    loop {
        let mut len = 0;
        while len < buffer.len() {
            match file.read(&mut buffer[len..]).map_err(Copied::Host)? {
                0 => break,
                read => len += read,
            }
        }
        if len == 0 {
            break;
        }
        // Runs of blocks that hold something are written at once.
        let mut run: Option<usize> = None;
        let flush = |run: Option<usize>, end: usize| -> Result<(), Copied> {
            let Some(start) = run else { return Ok(()) };
            let mut done = start;
            while done < end {
                let place = at + done as u64;
                let now = volume.write_by(number, place, &buffer[done..end], &OWNER);
                done += now.map_err(volume_error)?;
            }
            Ok(())
        };
        for (index, bytes) in buffer[..len].chunks(block).enumerate() {
            let start = index * block;
            if bytes.iter().all(|byte| *byte == 0) {
                flush(run.take(), start)?;
            } else {
                run.get_or_insert(start);
            }
        }
        flush(run, len)?;
        at += len as u64;
    }
    volume.truncate_by(number, at, &OWNER).map_err(volume_error)
}

pub(super) fn mkdir(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, path] = words else { return Err(refuse(words, "Usage: mkdir <file>")) };
    let there = || refuse(words, "Ext2 directory already exists ");
    if let Seen::Directory | Seen::Other = shell.seen(words, path)? {
        return Err(there());
    }
    let (volume, dir, name) = shell.live_name(words, path)?;
    let made = volume.mkdir(dir, name, 0o755, &OWNER);
    made.map(drop).map_err(|error| match error {
        Error::Exists => there(),
        error => refused(words, &error),
    })
}

pub(super) fn symlink(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, path, target] = words else {
        return Err(refuse(words, "Usage: symlink <filename> <target>"));
    };
    shell.expect_new(words, path)?;
    let (volume, dir, name) = shell.live_name(words, path)?;
    let made = volume.symlink(dir, name, target, &OWNER);
    made.map(drop).map_err(|error| refused(words, &error))
}

pub(super) fn mknod(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = || refuse(words, "Usage: mknod <name> [p| [c|b] <major> <minor>]");
    let device = |major: &Word, minor: &Word| {
        let part = |word: &Word| number(word).and_then(|it| u32::try_from(it).ok());
        Some(DeviceNumber { major: part(major)?, minor: part(minor)? })
    };
    let (path, kind, device) = match words {
        [_, path, kind] if kind == b"p" => (path, FileType::Fifo, DeviceNumber::default()),
        [_, path, kind, major, minor] => {
            let kind = match &kind[..] {
                b"c" => FileType::CharDevice,
                b"b" => FileType::BlockDevice,
                _ => return Err(usage()),
            };
            (path, kind, device(major, minor).ok_or_else(usage)?)
        }
        _ => return Err(usage()),
    };
    shell.expect_new(words, path)?;
    let (volume, dir, name) = shell.live_name(words, path)?;
    let made = volume.mknod(dir, name, kind.mode(), device, &OWNER);
    let number = made.map_err(|error| refused(words, &error))?.number;
    shell.print(format!("Allocated inode: {number}\n"))
}

/// A name more, and no link more: that is for `set_inode_field`.
pub(super) fn ln(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, source, target] = words else {
        return Err(refuse(words, "Usage: ln <source_file> <dest_name>"));
    };
    let number = shell.open_inode(words, source)?;
    add_name(shell, words, (number, source), target)
}

/// Gives an inode one more name, and no link. In a directory that is there it is the last name of
/// the word that the inode was found by.
pub(super) fn add_name(
    shell: &mut Shell<'_>,
    words: &[Word],
    (number, source): (InodeNo, &[u8]),
    target: &[u8],
) -> Done {
    if let Seen::Other = shell.seen(words, target)? {
        return Err(Refusal::Line(format!("make_link: {} ", DebugError::NotADirectory)));
    }
    let (volume, mut dir, mut name) = shell.live_name(words, target)?;
    let found = match name {
        [] => Some(dir),
        name => volume.lookup(dir, name).ok().map(|found| found.inode),
    };
    if let Some(found) = found {
        dir = found;
        name = source.rsplit(|byte| *byte == b'/').next().unwrap_or(source);
    }
    volume
        .link(number, dir, name)
        .map_err(|error| Refusal::Line(format!("make_link: {} ", engine_text(&error))))?;
    let image = shell.image(words)?;
    let changed = image.change(|volume| {
        let mut record = volume.inode(number)?;
        let links = record.base().i_links_count.get().saturating_sub(1);
        record.set_links(links);
        volume.write_inode(&mut record)
    });
    changed.map_err(|why| refuse(words, why))
}

/// A name less, and no link less.
pub(super) fn unlink(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, path] = words else { return Err(refuse(words, "Usage: unlink <pathname>")) };
    let image = shell.writable(words)?;
    let end = path.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = match end {
        Some(end) => (&path[..end.max(1)], &path[end + 1..]),
        None => (&b"."[..], &path[..]),
    };
    let dir = match dir {
        b"." => image.cwd,
        dir => image.inode_of(dir).map_err(|error| at_file(path, error))?,
    };
    let removed = image.change(|volume| volume.remove_name(dir, name));
    removed.map_err(|why| Refusal::Line(format!("unlink_file_by_name: {why} ")))
}

pub(super) fn rm(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, path] = words else { return Err(refuse(words, "Usage: rm <filename>")) };
    let missing = |error: &Error| failed(words, engine_text(error), "trying to resolve filename");
    if path.starts_with(b"<") {
        return Err(refuse(words, "a path is needed, not an inode"));
    }
    match shell.seen(words, path)? {
        Seen::Absent => return Err(missing(&Error::NotFound)),
        Seen::Directory => return Err(refuse(words, "file is a directory")),
        Seen::Unknown | Seen::Other => {}
    }
    let (volume, dir, name) = shell.live_name(words, path)?;
    let record = volume.lookup(dir, name).and_then(|found| volume.inode(found.inode));
    let is_last = record.is_ok_and(|record| record.links <= 1);
    volume.unlink(dir, name).map_err(|error| match error {
        Error::IsADirectory => refuse(words, "file is a directory"),
        error => missing(&error),
    })?;
    // As theirs, for a file that is freed.
    if is_last { shell.print("\n") } else { Ok(()) }
}

pub(super) fn rmdir(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, path] = words else { return Err(refuse(words, "Usage: rmdir <filename>")) };
    match shell.seen(words, path)? {
        Seen::Other => return Err(refuse(words, "file is not a directory")),
        Seen::Directory if shell.has_names(words, path)? => {
            return Err(refuse(words, "directory not empty"));
        }
        _ => {}
    }
    let (volume, dir, name) = shell.live_name(words, path)?;
    volume.rmdir(dir, name).map_err(|error| match error {
        Error::NotEmpty => refuse(words, "directory not empty"),
        Error::NotADirectory => refuse(words, "file is not a directory"),
        error => failed(words, engine_text(&error), "trying to resolve filename"),
    })?;
    // As theirs, for a file that is freed.
    shell.print("\n")
}

/// `fallocate`: holes get unwritten blocks. The size of the file stays.
pub(super) fn fallocate(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    change_range(shell, words, FallocateMode::KeepSize, "fallocating")
}

/// `punch` and `truncate`: blocks are given back. The size of the file stays.
pub(super) fn punch(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    change_range(shell, words, FallocateMode::PunchHole, "truncating")
}

/// Changes the map of a run of blocks, which is given by its first and last one.
fn change_range(shell: &mut Shell<'_>, words: &[Word], mode: FallocateMode, doing: &str) -> Done {
    let (spec, first, last) = match words {
        [_, spec, first] => (spec, first, None),
        [_, spec, first, last] => (spec, first, Some(last)),
        _ => {
            let name = text(words.first().map_or(&[][..], |name| name));
            return Err(refuse(words, format_args!("Usage: {name} <file> start_blk [end_blk]")));
        }
    };
    let block = |word: &Word| {
        let wrong = || refuse(words, format_args!("Bad logical block - {}", text(word)));
        number(word).ok_or_else(wrong)
    };
    let inode = shell.open_inode(words, spec)?;
    let (first, last) = (block(first)?, last.map_or(Ok(u64::MAX), block)?);
    if last < first {
        let doing = format_args!("{doing} inode {inode} from {first} to {last}\n");
        return Err(failed(words, "Invalid argument", doing));
    }
    let (volume, inode) = shell.live_inode(words, spec)?;
    let block_size = u64::from(volume.geometry().block_size);
    let start = first.saturating_mul(block_size);
    let end = last.saturating_add(1).saturating_mul(block_size);
    // To the end of what a file may have: that is no error for a hole.
    let end = match mode {
        FallocateMode::PunchHole if end > start => end.min(volume.max_file_size()).max(start),
        _ => end,
    };
    let changed = match end.checked_sub(start) {
        None | Some(0) => Ok(()),
        Some(length) => volume
            .fallocate_by(inode, mode, start, length, &OWNER)
            .map_err(|error| engine_text(&error)),
    };
    changed.map_err(|why| {
        let doing = format_args!("{doing} inode {inode} from {first} to {last}\n");
        failed(words, why, doing)
    })
}
