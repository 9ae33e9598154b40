//! `extant timeline`: the times of all files, deleted ones too.

use std::collections::BTreeMap;
use std::ffi::OsString;

use extant::FileType;
use extant::rescue::{DeletedFiles, TimelineEntry, timeline};

use crate::describe::permissions_text;
use crate::failure::{At as _, Failure};
use crate::image_path::ImagePath;
use crate::journal_device::refuse_other_content;
use crate::session::Session;
use crate::time;

/// List the times of all files, deleted ones too
///
/// A line for each time of a file, in order: m for a change of its contents, a for access, c for a
/// change of its inode, b for its creation. With --bodyfile it is the form that mactime reads, as
/// 'fls -r -m /' of The Sleuth Kit prints it. The image is only read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print a body file for mactime
    #[arg(long)]
    bodyfile: bool,
    /// Image
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let inside = ImagePath::parse(&self.image)?;
        inside.check_is_image()?;
        inside.check_primary_superblock()?;
        let device = inside.open()?;
        refuse_other_content(&inside.name, &*device)?;
        let deleted = DeletedFiles::find(device).at(&inside.name)?;
        let entries = timeline(&deleted).at(&inside.name)?;
        match self.bodyfile {
            true => entries.iter().try_for_each(|entry| session.out.bytes(&body_line(entry))),
            false => events(&entries, session),
        }
    }
}

/// The name as `fls` prints it.
fn shown_name(entry: &TimelineEntry) -> Vec<u8> {
    let mut name = match &entry.path {
        Some(path) => path.clone(),
        None => format!("/$OrphanFiles/OrphanFile-{}", entry.inode.0).into_bytes(),
    };
    if let Some(target) = &entry.target {
        name.extend_from_slice(b" -> ");
        name.extend_from_slice(target);
    }
    if entry.is_deleted {
        name.extend_from_slice(b" (deleted)");
    }
    // Control characters would end the line.
    name.iter_mut().filter(|byte| byte.is_ascii_control()).for_each(|byte| *byte = b'^');
    name
}

/// The letter of a type.
fn letter(file_type: Option<FileType>) -> char {
    match file_type {
        Some(FileType::Regular) => 'r',
        Some(FileType::Directory) => 'd',
        Some(FileType::Symlink) => 'l',
        Some(FileType::CharDevice) => 'c',
        Some(FileType::BlockDevice) => 'b',
        Some(FileType::Fifo) => 'p',
        Some(FileType::Socket) => 's',
        None => '-',
    }
}

/// `0|/path|inode|r/rrw-r--r--|uid|gid|size|atime|mtime|ctime|crtime`.
fn body_line(entry: &TimelineEntry) -> Vec<u8> {
    let of_inode = letter(entry.file_type());
    let of_name = if entry.path.is_some() { of_inode } else { '-' };
    let mut line = b"0|".to_vec();
    line.extend(shown_name(entry));
    let rest = match &entry.attributes {
        Some(inode) => format!(
            "|{}|{of_name}/{of_inode}{}|{}|{}|{}|{}|{}|{}|{}\n",
            entry.inode.0,
            permissions_text(inode.permissions()),
            inode.uid,
            inode.gid,
            inode.size,
            inode.atime.seconds,
            inode.mtime.seconds,
            inode.ctime.seconds,
            inode.crtime.map_or(0, |time| time.seconds),
        ),
        None => format!("|{}|{of_name}/----------|0|0|0|0|0|0|0\n", entry.inode.0),
    };
    line.extend(rest.into_bytes());
    line
}

/// Prints the times in order.
fn events(entries: &[TimelineEntry], session: &mut Session) -> Result<(), Failure> {
    let mut events: BTreeMap<(i64, usize), [u8; 4]> = BTreeMap::new();
    for (at, entry) in entries.iter().enumerate() {
        let Some(inode) = &entry.attributes else { continue };
        let times = [
            (b'm', Some(inode.mtime)),
            (b'a', Some(inode.atime)),
            (b'c', Some(inode.ctime)),
            (b'b', inode.crtime),
        ];
        for (place, (letter, time)) in times.into_iter().enumerate() {
            if let Some(time) = time {
                events.entry((time.seconds, at)).or_insert(*b"....")[place] = letter;
            }
        }
    }
    for ((seconds, at), which) in events {
        let (entry, which) = (&entries[at], String::from_utf8_lossy(&which).into_owned());
        let Some(inode) = &entry.attributes else { continue };
        let line = format!(
            "{}  {which}  {}{}  {:>5} {:>5}  {:>12}  ",
            time::to_second(seconds),
            letter(entry.file_type()),
            permissions_text(inode.permissions()),
            inode.uid,
            inode.gid,
            inode.size
        );
        session.out.bytes(line.as_bytes())?;
        session.out.bytes(&shown_name(entry))?;
        session.out.bytes(b"\n")?;
    }
    Ok(())
}
