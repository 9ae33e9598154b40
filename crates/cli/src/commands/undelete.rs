//! `extant undelete`: deleted files found in the log and on the disk, and copied out.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use extant::FileType;
use extant::rescue::{Content, DeletedFile, DeletedFiles};

use crate::deleted::{DeletedLine, show};
use crate::failure::{At as _, Failure};
use crate::image_path::ImagePath;
use crate::journal_device::refuse_other_content;
use crate::session::Session;
use crate::time;

/// Bytes that are copied at a time.
const COPIED_AT_ONCE: usize = 1 << 20;
/// The exit code where some of what was asked for is not whole.
const PARTLY: u8 = 1;

/// Find deleted files, and copy them out
///
/// The journal's old copies of directories and inodes tell what was deleted lately, and the disk
/// still holds the contents of blocks that were not used again. Without -o the files are listed:
/// whole, partly (some bytes are in blocks that were used again), name only, or inode only (the
/// contents are not found). A file of which no name is known is shown by its inode, as <12>. The
/// image is only read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Copy the files that were chosen into this directory, which is made or is empty
    #[arg(short, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    output: Option<PathBuf>,
    /// Choose all
    #[arg(long)]
    all: bool,
    #[arg(
        long,
        value_name = "TIME",
        allow_hyphen_values = true,
        help = "Choose those deleted at this time or later: @SECONDS since 1970, or \
                'YYYY-MM-DD[ HH:MM[:SS]]' in UTC"
    )]
    since: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Image, or a file or directory in it to choose
    #[arg(value_name = "IMAGE[:/PATH]")]
    image: OsString,
    /// Choose this file, <12> by its inode, or what was below this directory
    #[arg(value_name = "PATH")]
    paths: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(mut self, session: &mut Session) -> Result<(), Failure> {
        let since = self.since.as_deref().map(|text| {
            let invalid = || Failure::usage(format_args!("invalid date: '{text}'"));
            time::parse(text).map(|(seconds, _)| seconds).ok_or_else(invalid)
        });
        let since = since.transpose()?;
        let inside = ImagePath::parse(&self.image)?;
        inside.check_primary_superblock()?;
        if inside.is_path_given {
            self.paths.push(inside.path.clone());
        }
        let chooses = self.all || since.is_some() || !self.paths.is_empty();
        if self.output.is_some() && !chooses {
            return Err(Failure::usage("-o: choose files: PATH, --since TIME or --all"));
        }
        let device = inside.open()?;
        refuse_other_content(&inside.name, &*device)?;
        let deleted = DeletedFiles::find(device).at(&inside.name)?;
        let mut is_partly = false;
        let chosen: Vec<_> =
            deleted.files().iter().filter(|file| self.is_chosen(file, since)).collect();
        if chosen.is_empty() && !self.paths.is_empty() {
            return Err(Failure::at(&inside.name, "no deleted file of that name is known"));
        }
        let mut copies = match &self.output {
            Some(dir) => Some(Copies::new(dir)?),
            None => None,
        };
        let mut lines = Vec::new();
        for (is_link, file) in [false, true].into_iter().flat_map(|it| {
            // Links last: nothing is written through one.
            let is_link = |file: &&DeletedFile| file.file_type() == Some(FileType::Symlink);
            chosen.iter().filter(move |file| is_link(file) == it).map(move |file| (it, *file))
        }) {
            let copy = match &mut copies {
                Some(copies) => match copies.copy(&deleted, file, is_link) {
                    Ok(copy) => copy,
                    Err(failure) => {
                        session.error(failure)?;
                        None
                    }
                },
                None => None,
            };
            is_partly |= copies.is_some() && (copy.is_none() || file.content != Content::Whole);
            match self.json {
                true => lines.push(DeletedLine::of(file, copy.as_deref())),
                false => show(file, session)?,
            }
        }
        if self.json {
            session.out.json_array(|element| lines.iter().try_for_each(element))?;
        }
        if let Some(copies) = copies {
            copies.finish()?;
        }
        match is_partly {
            true => {
                let why = "files that are not whole (see their states)";
                Err(Failure::at(&inside.name, why).with_code(PARTLY))
            }
            false => Ok(()),
        }
    }

    fn is_chosen(&self, file: &DeletedFile, since: Option<i64>) -> bool {
        if since.is_some_and(|since| file.deleted.is_none_or(|deleted| deleted < since)) {
            return false;
        }
        let is_named = |path: &OsString| {
            let wanted = path.as_bytes();
            let wanted = wanted.strip_suffix(b"/").unwrap_or(wanted);
            let wanted = wanted.strip_prefix(b"/").unwrap_or(wanted);
            if wanted == format!("<{}>", file.inode.0).as_bytes() {
                return true;
            }
            let Some(found) = file.path.as_deref().and_then(|path| path.strip_prefix(b"/")) else {
                return false;
            };
            let below = found.strip_prefix(wanted);
            wanted.is_empty() || below.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        self.paths.is_empty() || self.paths.iter().any(is_named)
    }
}

/// The directory that files are copied into.
struct Copies<'a> {
    dir: &'a Path,
    /// Directories, and their modes: set at the end, since one may not be writable.
    modes: Vec<(PathBuf, u32)>,
}

impl<'a> Copies<'a> {
    fn new(dir: &'a Path) -> Result<Self, Failure> {
        fs::create_dir_all(dir).at(dir)?;
        match fs::read_dir(dir).at(dir)?.next() {
            None => Ok(Self { dir, modes: Vec::new() }),
            Some(_) => Err(Failure::at(dir, "directory not empty")),
        }
    }

    /// Copies a file; `None` where there is nothing to copy.
    fn copy(
        &mut self,
        deleted: &DeletedFiles,
        file: &DeletedFile,
        is_link: bool,
    ) -> Result<Option<PathBuf>, Failure> {
        let Some(attributes) = file.attributes.as_ref().filter(|_| file.content != Content::Gone)
        else {
            return Ok(None);
        };
        let path = match &file.path {
            // It begins with a slash.
            Some(path) => self.dir.join(OsStr::from_bytes(&path[1..])),
            None => self.dir.join(format!("inode-{}", file.inode.0)),
        };
        let path = free_name(path, file.inode.0);
        self.check_no_link_above(&path)?;
        if let Some(above) = path.parent() {
            fs::create_dir_all(above).at(above)?;
        }
        match file.file_type() {
            Some(FileType::Directory) => {
                fs::create_dir_all(&path).at(&path)?;
                self.modes.push((path.clone(), attributes.permissions().into()));
            }
            Some(FileType::Regular) => {
                let copy = fs::File::create_new(&path).at(&path)?;
                self.fill(deleted, file, &copy).at(&path)?;
                let moment = time::moment(attributes.mtime.seconds, attributes.mtime.nanoseconds);
                copy.set_modified(moment.unwrap_or(SystemTime::UNIX_EPOCH)).at(&path)?;
                let mode = u32::from(attributes.permissions() & 0o777);
                copy.set_permissions(fs::Permissions::from_mode(mode)).at(&path)?;
            }
            Some(FileType::Symlink) if is_link => {
                let target = deleted.read_link(file).at(&path)?;
                symlink(OsStr::from_bytes(&target), &path).at(&path)?;
            }
            _ => return Ok(None),
        }
        Ok(Some(path))
    }

    /// Refuses a path below a symbolic link that was copied out: it may lead anywhere.
    fn check_no_link_above(&self, path: &Path) -> Result<(), Failure> {
        let above = path.ancestors().skip(1).take_while(|above| *above != self.dir);
        let is_link = |above: &&Path| above.is_symlink();
        match above.into_iter().find(is_link) {
            Some(link) => Err(Failure::at(path, format_args!("{} is a link", link.display()))),
            None => Ok(()),
        }
    }

    /// Writes the contents; lost bytes are left as holes.
    fn fill(
        &self,
        deleted: &DeletedFiles,
        file: &DeletedFile,
        copy: &fs::File,
    ) -> Result<(), io::Error> {
        let lost = match &file.content {
            Content::Partly(lost) => &lost[..],
            _ => &[],
        };
        let size = file.attributes.as_ref().map_or(0, |it| it.size);
        copy.set_len(size)?;
        let mut buffer = vec![0; COPIED_AT_ONCE];
        for data in &file.data {
            self.fill_range(deleted, file, copy, data.clone(), lost, &mut buffer)?;
        }
        Ok(())
    }

    fn fill_range(
        &self,
        deleted: &DeletedFiles,
        file: &DeletedFile,
        copy: &fs::File,
        data: Range<u64>,
        lost: &[Range<u64>],
        buffer: &mut [u8],
    ) -> Result<(), io::Error> {
        let mut at = data.start;
        while at < data.end {
            let most = (data.end - at).min(buffer.len() as u64) as usize;
            let count = deleted.read(file, at, &mut buffer[..most]).map_err(io::Error::other)?;
            if count == 0 {
                break;
            }
            let bytes = &mut buffer[..count];
            let end = at + count as u64;
            for lost in lost.iter().filter(|it| it.start < end && it.end > at) {
                let from = lost.start.max(at) - at;
                let to = lost.end.min(end) - at;
                bytes[from as usize..to as usize].fill(0);
            }
            if bytes.iter().any(|byte| *byte != 0) {
                copy.write_all_at(bytes, at)?;
            }
            at = end;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), Failure> {
        for (path, mode) in self.modes.iter().rev() {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777)).at(path)?;
        }
        Ok(())
    }
}

/// A path that no file has yet: several deleted files may have had the same one.
fn free_name(path: PathBuf, inode: u32) -> PathBuf {
    if path.symlink_metadata().is_err() {
        return path;
    }
    let mut other = path.into_os_string();
    other.push(format!(".inode-{inode}"));
    other.into()
}
