//! `ls`: the entries of a directory.

use std::ops::ControlFlow;

use extant::debug::{DebugVolume, DirItem, DirWalk};
use extant::rooms::ondisk::inode::FileType;
use extant::{InodeFlags, InodeNo};

use super::options::Options;
use super::shell::{Done, Refusal, Shell, at_file, failed};
use super::words::Word;
use crate::time;

/// Columns of a line of the short form.
const WIDTH: usize = 80;

/// How entries are shown.
#[derive(Clone, Copy)]
enum Form {
    Short,
    Long,
    Parseable,
}

/// A listing in the making.
struct Listing<'v> {
    volume: &'v DebugVolume,
    form: Form,
    /// Whether names are shown that only a key makes readable.
    shows_encrypted: bool,
    text: Vec<u8>,
    column: usize,
    /// Inodes that could not be read.
    unreadable: Vec<(InodeNo, String)>,
}

pub(super) fn ls(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: ls [-c] [-d] [-l] [-p] [-r] file";
    let options = Options::read(words, "cdlpr", usage)?;
    let form = match (options.has('l'), options.has('p')) {
        (_, true) => Form::Parseable,
        (true, _) => Form::Long,
        _ => Form::Short,
    };
    let walk = DirWalk {
        with_empty: true,
        with_removed: options.has('d'),
        with_checksums: options.has('c'),
    };
    let spec = match options.operands[..] {
        [] => None,
        [spec] => Some(spec),
        _ => return Err(Refusal::Line(usage.to_owned())),
    };
    let image = shell.image(words)?;
    let number = match spec {
        Some(spec) => image.inode_of(spec).map_err(|error| at_file(spec, error))?,
        None => image.cwd,
    };
    let volume = &image.volume;
    let record = volume
        .inode(number)
        .map_err(|error| failed(words, error, format_args!("reading inode {number}")))?;
    let is_encrypted = record.flags().contains(InodeFlags::ENCRYPT);
    let mut listing = Listing {
        volume,
        form,
        shows_encrypted: options.has('r') || !is_encrypted,
        text: Vec::new(),
        column: 0,
        unreadable: Vec::new(),
    };
    let walked = volume.walk_dir(&record, walk, &mut |item| {
        listing.add(item);
        ControlFlow::Continue(())
    });
    listing.text.push(b'\n');
    let Listing { text, unreadable, .. } = listing;
    shell.print(text)?;
    for (number, error) in unreadable {
        let refusal = failed(words, error, format_args!("reading inode {number}"));
        shell.complain_and_go_on(refusal)?;
    }
    walked.map_err(|error| at_file(spec.unwrap_or_default(), error))
}

impl Listing<'_> {
    fn add(&mut self, item: &DirItem<'_>) {
        let name = match item.checksum {
            Some(sum) => format!("(dirblock checksum: {sum:#010x})").into_bytes(),
            None if self.shows_encrypted || item.name == b"." || item.name == b".." => {
                item.name.to_vec()
            }
            None => format!("<encrypted ({})>", item.name.len()).into_bytes(),
        };
        match self.form {
            Form::Short => self.short(item, &name),
            Form::Long => self.long(item, &name),
            Form::Parseable => self.parseable(item, &name),
        }
    }

    fn brackets(item: &DirItem<'_>) -> [char; 2] {
        if item.is_removed { ['<', '>'] } else { [' ', ' '] }
    }

    fn short(&mut self, item: &DirItem<'_>, name: &[u8]) {
        let [before, after] = Self::brackets(item);
        let head = match item.checksum {
            Some(_) => format!("{before}{}{after} ", item.inode),
            None => format!("{before}{}{after} ({}) ", item.inode, item.rec_len),
        };
        let len = head.len() + name.len() + 3;
        if self.column + len > WIDTH {
            self.text.push(b'\n');
            self.column = 0;
        }
        self.column += len;
        self.text.extend_from_slice(head.as_bytes());
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b"   ");
    }

    /// The record of an entry; `None` for an entry without one.
    fn record(&mut self, item: &DirItem<'_>) -> Result<Option<extant::debug::RawRecord>, ()> {
        if item.is_removed || item.inode == 0 {
            return Ok(None);
        }
        let number = InodeNo(item.inode);
        self.volume.inode(number).map(Some).map_err(|error| {
            self.unreadable.push((number, error.to_string()));
        })
    }

    fn long(&mut self, item: &DirItem<'_>, name: &[u8]) {
        let Ok(record) = self.record(item) else { return };
        let [before, after] = Self::brackets(item);
        let number = if item.is_removed { 0 } else { item.inode };
        let (mode, uid, gid, size, date) = match &record {
            Some(record) => {
                // As there: 32 bits without a sign, whatever lies above them.
                let date = time::day_first(i64::from(record.base().i_mtime.get()));
                (record.mode(), record.uid(), record.gid(), record.size(), date)
            }
            None => (0, 0, 0, 0, " ".repeat(17)),
        };
        let file_type = item.file_type;
        let line = format!(
            "{before}{number:>6}{after} {mode:>6o} ({file_type})  {uid:>5}  {gid:>5}   {size:>5} {date} "
        );
        self.text.extend_from_slice(line.as_bytes());
        self.text.extend_from_slice(name);
        self.text.push(b'\n');
    }

    fn parseable(&mut self, item: &DirItem<'_>, name: &[u8]) {
        let Ok(record) = self.record(item) else { return };
        let (mode, uid, gid) =
            record.as_ref().map_or((0, 0, 0), |it| (it.mode(), it.uid(), it.gid()));
        let number = if item.is_removed { 0 } else { item.inode };
        let line = format!("/{number}/{mode:06o}/{uid}/{gid}/");
        self.text.extend_from_slice(line.as_bytes());
        self.text.extend_from_slice(name);
        let size = match &record {
            Some(record) if record.file_type() == Some(FileType::Directory) => String::new(),
            Some(record) => record.size().to_string(),
            None => "0".to_owned(),
        };
        self.text.extend_from_slice(format!("/{size}/\n").as_bytes());
    }
}
