//! `cat`, `dump` and `rdump`: files out of the volume.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use extant::InodeNo;
use extant::debug::{DebugError, DebugVolume, DirWalk, RawRecord};
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::ondisk::time::Timestamp;
use rustix::fs::{AtFlags, CWD, OFlags, Timespec, Timestamps};

use super::host::host_error;
use super::options::Options;
use super::shell::{Done, Refusal, Shell, failed, refuse};
use super::words::{Word, text};
use crate::err_line;
use crate::failure::Failure;
use crate::session::Session;

/// Bytes of zeros that are written at once.
static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
/// Directories below one another that are followed.
const MAX_DEPTH: usize = 256;

/// A file was not written.
enum NotWritten {
    Volume(DebugError),
    Host(io::Error),
    Output(Failure),
}

impl From<DebugError> for NotWritten {
    fn from(error: DebugError) -> Self {
        Self::Volume(error)
    }
}

impl NotWritten {
    fn refusal(self, words: &[Word], file: &Path) -> Refusal {
        match self {
            Self::Volume(error) => failed(words, error, "reading ext2 file"),
            Self::Host(error) => {
                failed(words, host_error(&error), format_args!("writing {}", file.display()))
            }
            Self::Output(failure) => Refusal::Output(failure),
        }
    }
}

fn zeros(session: &mut Session, mut count: u64) -> Result<(), NotWritten> {
    while count > 0 {
        let now = count.min(ZEROS.len() as u64);
        // No longer than the array.
        session.out.bytes(&ZEROS[..now as usize]).map_err(NotWritten::Output)?;
        count -= now;
    }
    Ok(())
}

pub(super) fn cat(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "cat <file>")?;
    let record = shell.record_of(words, spec)?;
    let Shell { session, image: Some(image), .. } = shell else { return Ok(()) };
    let mut at = 0;
    let read = image.volume.read_data(&record, |position, bytes| {
        zeros(session, position.saturating_sub(at))?;
        session.out.bytes(bytes).map_err(NotWritten::Output)?;
        at = position + bytes.len() as u64;
        Ok(())
    });
    read.and_then(|()| zeros(session, record.size().saturating_sub(at)))
        .map_err(|error| error.refusal(words, Path::new("standard output")))
}

/// Copies a file's data in order, holes as zeros: to a pipe or a device.
fn stream(volume: &DebugVolume, record: &RawRecord, mut to: &File) -> Result<(), NotWritten> {
    let mut at = 0;
    let zeros = |to: &mut &File, mut count: u64| {
        while count > 0 {
            let now = count.min(ZEROS.len() as u64);
            // No longer than the array.
            to.write_all(&ZEROS[..now as usize]).map_err(NotWritten::Host)?;
            count -= now;
        }
        Ok(())
    };
    volume.read_data(record, |position, bytes| {
        zeros(&mut to, position.saturating_sub(at))?;
        at = position + bytes.len() as u64;
        to.write_all(bytes).map_err(NotWritten::Host)
    })?;
    zeros(&mut to, record.size().saturating_sub(at))
}

/// Copies a file's data, holes left out.
fn copy(volume: &DebugVolume, record: &RawRecord, to: &File) -> Result<(), NotWritten> {
    volume.read_data(record, |position, bytes| {
        to.write_all_at(bytes, position).map_err(NotWritten::Host)
    })?;
    to.set_len(record.size()).map_err(NotWritten::Host)
}

pub(super) fn dump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "dump: Usage: dump_inode [-p] <file> <output_file>";
    let options = Options::read(words, "p", usage)?;
    let [spec, output] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    let record = shell.record_of(words, spec)?;
    let path = Path::new(OsStr::from_bytes(output));
    let doing = format!("opening {} for dump_inode", text(output));
    let file = File::create(path).map_err(|error| failed(words, host_error(&error), doing))?;
    let volume = shell.volume(words)?;
    let copied = match file.metadata() {
        Ok(found) if found.is_file() => copy(volume, &record, &file),
        _ => stream(volume, &record, &file),
    };
    copied.map_err(|error| error.refusal(words, path))?;
    if options.has('p') {
        keep_attributes(&record, path, words);
    }
    Ok(())
}

fn moment(time: Timestamp) -> Timespec {
    Timespec { tv_sec: time.seconds, tv_nsec: i64::from(time.nanoseconds) }
}

/// Gives a file on the host the owner, the permissions and the times of an inode. What an ordinary
/// user may not do is told and is no failure.
fn keep_attributes(record: &RawRecord, path: &Path, words: &[Word]) {
    let name = text(&words[0]);
    let is_link = record.file_type() == Some(FileType::Symlink);
    let warn = |error: &io::Error, doing: &str| {
        err_line!("{name}: {} while {doing} {}", host_error(error), path.display());
    };
    if let Err(error) = lchown(path, Some(record.uid()), Some(record.gid())) {
        warn(&error, "changing ownership of");
    }
    if !is_link {
        let mode = u32::from(record.mode() & 0o7777);
        if let Err(error) = fs::set_permissions(path, Permissions::from_mode(mode)) {
            warn(&error, "setting permissions of");
        }
    }
    let (access, modification) = (moment(record.atime()), moment(record.mtime()));
    let times = Timestamps { last_access: access, last_modification: modification };
    let flags = AtFlags::SYMLINK_NOFOLLOW;
    if let Err(error) = rustix::fs::utimensat(CWD, path, &times, flags) {
        warn(&error.into(), "setting times of");
    }
}

pub(super) fn rdump(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let [_, sources @ .., target] = words else {
        return Err(refuse(words, "Usage: rdump <directory>... <native directory>"));
    };
    if sources.is_empty() {
        return Err(refuse(words, "Usage: rdump <directory>... <native directory>"));
    }
    shell.image(words)?;
    let target = Path::new(OsStr::from_bytes(target));
    let found = fs::metadata(target);
    let found = found.map_err(|error| {
        failed(words, host_error(&error), format_args!("statting {}", target.display()))
    })?;
    if !found.is_dir() {
        return Err(refuse(words, format_args!("{} is not a directory", target.display())));
    }
    for source in sources {
        let number = match shell.inode_of(words, source) {
            Ok(number) => number,
            Err(refusal) => {
                shell.complain_and_go_on(refusal)?;
                continue;
            }
        };
        let base = source.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let mut problems = Vec::new();
        let mut tree = Tree { volume: shell.volume(words)?, words, problems: &mut problems };
        tree.file(number, &base, target, 0);
        for problem in problems {
            shell.complain_and_go_on(problem)?;
        }
    }
    Ok(())
}

/// A tree on its way to the host.
struct Tree<'t> {
    volume: &'t DebugVolume,
    words: &'t [Word],
    problems: &'t mut Vec<Refusal>,
}

impl Tree<'_> {
    fn host(&mut self, error: &io::Error, doing: &str, path: &Path) {
        let doing = format!("{doing} {}", path.display());
        self.problems.push(failed(self.words, host_error(error), doing));
    }

    /// Copies a file below a directory of the host. An empty name is the directory itself.
    fn file(&mut self, number: InodeNo, name: &[u8], below: &Path, depth: usize) {
        let record = match self.volume.inode(number) {
            Ok(record) => record,
            Err(error) => {
                let doing = format!("reading inode {number}");
                return self.problems.push(failed(self.words, error, doing));
            }
        };
        // Names of a forged image must not lead out of the directory.
        if name.contains(&b'/') || [&b"."[..], b".."].contains(&name) && depth > 0 {
            let what = format!("{}: invalid name", text(name));
            return self.problems.push(refuse(self.words, what));
        }
        let path = match name {
            b"" | b"." | b".." => below.to_owned(),
            name => below.join(OsStr::from_bytes(name)),
        };
        match record.file_type() {
            Some(FileType::Symlink) => self.link(&record, &path),
            Some(FileType::Regular) => self.regular(&record, &path),
            Some(FileType::Directory) => {
                self.directory(&record, &path, path == *below, depth);
            }
            // Devices, pipes and sockets are left out.
            _ => {}
        }
    }

    fn link(&mut self, record: &RawRecord, path: &PathBuf) {
        let target = match self.volume.link_target(record) {
            Ok(target) => target,
            Err(error) => {
                let doing = format!("reading symlink {}", path.display());
                return self.problems.push(failed(self.words, error, doing));
            }
        };
        match symlink(OsStr::from_bytes(&target), path) {
            Ok(()) => keep_attributes(record, path, self.words),
            Err(error) => self.host(&error, "creating symlink", path),
        }
    }

    fn regular(&mut self, record: &RawRecord, path: &PathBuf) {
        // A link that the image put there before is not followed.
        let no_link = OFlags::NOFOLLOW.bits().cast_signed();
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).custom_flags(no_link);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) => return self.host(&error, "opening", path),
        };
        match copy(self.volume, record, &file) {
            Ok(()) => keep_attributes(record, path, self.words),
            Err(error) => self.problems.push(error.refusal(self.words, path)),
        }
    }

    fn directory(&mut self, record: &RawRecord, path: &Path, is_there: bool, depth: usize) {
        if depth > MAX_DEPTH {
            let what = format!("{}: too many levels of directories", path.display());
            return self.problems.push(refuse(self.words, what));
        }
        if !is_there && let Err(error) = fs::create_dir(path) {
            return self.host(&error, "making directory", path);
        }
        let mut entries = Vec::new();
        let walked = self.volume.walk_dir(record, DirWalk::default(), &mut |item| {
            if item.name != b"." && item.name != b".." && !item.name.is_empty() {
                entries.push((InodeNo(item.inode), item.name.to_vec()));
            }
            ControlFlow::Continue(())
        });
        if let Err(error) = walked {
            let doing = format!("dumping {}", path.display());
            self.problems.push(failed(self.words, error, doing));
        }
        for (number, name) in entries {
            self.file(number, &name, path, depth + 1);
        }
        if !is_there {
            keep_attributes(record, path, self.words);
        }
    }
}
