//! `extant ls`: names in directories of an image.
use std::cmp::Reverse;

use extant::rescue::DeletedFiles;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{AclKind, Follow, LoadedInode, VolumeRead};

use super::Operands;
use crate::deleted::{self, DeletedLine};
use crate::describe::{JsonFile, device_of, mode_text};
use crate::failure::{At as _, Failure};
use crate::output::{human_size, printable};
use crate::reader::{Descend, Image, join};
use crate::say;
use crate::session::Session;
use crate::time;

/// List files
///
/// Owners are shown as numbers.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Long format: types, modes, links, owners, sizes and times
    #[arg(short)]
    long: bool,
    /// Include names that begin with a dot, `.` and `..` too
    #[arg(short)]
    all: bool,
    /// Include names that begin with a dot, except `.` and `..`
    #[arg(short = 'A')]
    almost_all: bool,
    /// List subdirectories recursively
    #[arg(short = 'R')]
    recursive: bool,
    /// Print the inode number of each file
    #[arg(short)]
    inode: bool,
    /// Print sizes in powers of 1024, such as 1.5K
    #[arg(short = 'h')]
    human: bool,
    /// List one file per line; the default if the output is not a terminal
    #[arg(short = '1')]
    one_a_line: bool,
    /// List directories themselves, not their contents
    #[arg(short)]
    directory: bool,
    /// Sort by time, newest first
    #[arg(short = 't', conflicts_with = "by_size")]
    by_time: bool,
    /// Sort by size, largest first
    #[arg(short = 'S')]
    by_size: bool,
    /// Reverse the order
    #[arg(short)]
    reverse: bool,
    /// List deleted files, as 'extant undelete' does: of the directory, with -R below it too
    #[arg(long)]
    deleted: bool,
    /// Print all fields as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// A name and its file.
struct Listed {
    name: Vec<u8>,
    path: Vec<u8>,
    file: LoadedInode,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.deleted {
            return self.list_deleted(session);
        }
        if self.json {
            return self.run_json(session);
        }
        let mut is_first = true;
        self.operands.each_named(session, |named, session| {
            let has_titles = self.recursive || !named.is_only;
            let (image, path) = (&*named.image, &named.path[..]);
            let start = image.resolve(path, self.follow())?;
            if !start.is_dir() || self.directory {
                is_first = false;
                let listed = Listed { name: path.to_vec(), path: path.to_vec(), file: start };
                return self.show(image, &[listed], session);
            }
            image.walk(start, path, session, &mut |walked, session| {
                if !walked.file.is_dir() {
                    return Ok(Descend::No);
                }
                if has_titles {
                    let gap = if is_first { "" } else { "\n" };
                    session.out.bytes(gap.as_bytes())?;
                    session.out.name(image.place(&walked.path).as_bytes())?;
                    session.out.bytes(b":\n")?;
                }
                is_first = false;
                let listed = self.list(image, &walked.file, &walked.path, session)?;
                if self.long {
                    let blocks: u64 =
                        listed.iter().map(|it| it.file.space(image.volume.geometry())).sum();
                    say!(session, "total {}", self.size(blocks.div_ceil(1024), blocks))?;
                }
                self.show(image, &listed, session)?;
                let enters = self.recursive && (walked.depth == 0 || self.is_shown(&walked.name));
                Ok(if enters { Descend::Yes } else { Descend::No })
            })
        })
    }

    /// With `-l` or `-d` a symlink is shown itself.
    fn follow(&self) -> Follow {
        if self.long || self.directory { Follow::No } else { Follow::Yes }
    }

    fn run_json(&self, session: &mut Session) -> Result<(), Failure> {
        let mut found = Vec::new();
        self.operands.each(session, |image, path, session| {
            let start = image.resolve(path, self.follow())?;
            if !start.is_dir() || self.directory {
                found.push(JsonFile::new(image, path, &start));
                return Ok(());
            }
            image.walk(start, path, session, &mut |walked, session| {
                if !walked.file.is_dir() {
                    return Ok(Descend::No);
                }
                let listed = self.list(image, &walked.file, &walked.path, session)?;
                found.extend(listed.iter().map(|it| JsonFile::new(image, &it.path, &it.file)));
                let enters = self.recursive && (walked.depth == 0 || self.is_shown(&walked.name));
                Ok(if enters { Descend::Yes } else { Descend::No })
            })
        })?;
        session.out.json_array(|element| found.iter().try_for_each(element))
    }

    fn list_deleted(&self, session: &mut Session) -> Result<(), Failure> {
        let (mut lines, mut found) = (Vec::new(), 0);
        for inside in self.operands.inside()? {
            let deleted = DeletedFiles::find(inside.open()?).at(&inside.name)?;
            let path = inside.path.as_encoded_bytes();
            let dir = path.strip_suffix(b"/").unwrap_or(path);
            let before = found;
            for file in deleted.files() {
                // A file without a name is shown for the whole volume only.
                let is_below = match &file.path {
                    None => dir.is_empty(),
                    Some(path) => path.strip_prefix(dir).is_some_and(|rest| {
                        rest.is_empty()
                            || rest[0] == b'/' && (self.recursive || !rest[1..].contains(&b'/'))
                    }),
                };
                found += usize::from(is_below);
                match is_below {
                    true if self.json => lines.push(DeletedLine::of(file, None)),
                    true => deleted::show(file, session)?,
                    false => {}
                }
            }
            let is_there = deleted.reader().resolve(path, Follow::Yes).is_ok();
            if found == before && !is_there {
                let why = "no such directory, and no deleted file in it is known";
                let place = format!("{}:{}", inside.name.display(), inside.path.display());
                session.error(Failure::at(place, why))?;
            }
        }
        match self.json {
            true => session.out.json_array(|element| lines.iter().try_for_each(element)),
            false => Ok(()),
        }
    }

    fn is_shown(&self, name: &[u8]) -> bool {
        self.all || self.almost_all || !name.starts_with(b".")
    }

    /// Entries of a directory, in the requested order.
    fn list(
        &self,
        image: &Image,
        dir: &LoadedInode,
        path: &[u8],
        session: &mut Session,
    ) -> Result<Vec<Listed>, Failure> {
        let (names, failures) = image.names(dir.number, path);
        image.report(dir.number, failures, session)?;
        let mut listed = Vec::new();
        if self.all {
            for name in [&b"."[..], b".."] {
                let found = match image.volume.lookup(dir.number, name) {
                    // The block that holds it is corrupt, as was reported with the names.
                    Err(error) if error.is_corruption() => continue,
                    found => found,
                };
                match found.and_then(|found| image.volume.inode(found.inode)) {
                    Ok(file) => {
                        listed.push(Listed { name: name.into(), path: join(path, name), file })
                    }
                    Err(error) => session.error(image.failure(&join(path, name), error))?,
                }
            }
        }
        for name in names.into_iter().filter(|name| self.is_shown(&name.name)) {
            let path = join(path, &name.name);
            match image.volume.inode(name.inode) {
                Ok(file) => listed.push(Listed { name: name.name, path, file }),
                Err(error) => session.error(image.failure(&path, error))?,
            }
        }
        if self.by_time {
            listed.sort_by_key(|it| Reverse(it.file.mtime));
        }
        if self.by_size {
            listed.sort_by_key(|it| Reverse(it.file.size));
        }
        if self.reverse {
            listed.reverse();
        }
        Ok(listed)
    }

    fn size(&self, plain: u64, bytes: u64) -> String {
        if self.human { human_size(bytes) } else { plain.to_string() }
    }

    fn show(&self, image: &Image, listed: &[Listed], session: &mut Session) -> Result<(), Failure> {
        if self.long {
            return self.show_long(image, listed, session);
        }
        let inode_width =
            listed.iter().map(|it| it.file.number.0).max().unwrap_or(0).to_string().len();
        let prefix = |it: &Listed| match self.inode {
            true => format!("{:>inode_width$} ", it.file.number),
            false => String::new(),
        };
        if self.one_a_line || !session.out.is_terminal() {
            for it in listed {
                session.out.bytes(prefix(it).as_bytes())?;
                session.out.name(&it.name)?;
                session.out.bytes(b"\n")?;
            }
            return Ok(());
        }
        let cells: Vec<_> =
            listed.iter().map(|it| format!("{}{}", prefix(it), printable(&it.name))).collect();
        for line in in_columns(&cells, terminal_width()) {
            say!(session, "{line}")?;
        }
        Ok(())
    }

    fn show_long(
        &self,
        image: &Image,
        listed: &[Listed],
        session: &mut Session,
    ) -> Result<(), Failure> {
        let rows: Vec<[String; 6]> = listed
            .iter()
            .map(|it| {
                let file = &it.file;
                let has_acl = matches!(image.volume.acl(file.number, AclKind::Access), Ok(Some(_)));
                let size = match device_of(file) {
                    Some((major, minor)) => format!("{major}, {minor}"),
                    None => self.size(file.size, file.size),
                };
                [
                    if self.inode { format!("{} ", file.number) } else { String::new() },
                    format!("{}{}", mode_text(file), if has_acl { "+" } else { "" }),
                    file.links.to_string(),
                    file.uid.to_string(),
                    file.gid.to_string(),
                    size,
                ]
            })
            .collect();
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 6] = std::array::from_fn(width);
        for (it, [inode, mode, links, uid, gid, size]) in listed.iter().zip(&rows) {
            let line = format!(
                "{inode:>i$}{mode:<m$} {links:>l$} {uid:>u$} {gid:>g$} {size:>s$} {} ",
                time::short(it.file.mtime.seconds),
                i = widths[0],
                m = widths[1],
                l = widths[2],
                u = widths[3],
                g = widths[4],
                s = widths[5],
            );
            session.out.bytes(line.as_bytes())?;
            session.out.name(&it.name)?;
            if it.file.file_type() == FileType::Symlink {
                match image.volume.read_link(it.file.number) {
                    Ok(target) => {
                        session.out.bytes(b" -> ")?;
                        session.out.name(&target)?;
                    }
                    Err(error) => session.error(image.failure(&it.path, error))?,
                }
            }
            session.out.bytes(b"\n")?;
        }
        Ok(())
    }
}

/// Columns of the terminal, or 80.
fn terminal_width() -> usize {
    std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok())
        .filter(|&it| it > 0)
        .unwrap_or(80)
}

/// Cells top to bottom in as many columns as fit.
fn in_columns(cells: &[String], width: usize) -> Vec<String> {
    let lengths: Vec<_> = cells.iter().map(|cell| cell.chars().count()).collect();
    let widths_of = |rows: usize| -> Vec<usize> {
        lengths.chunks(rows).map(|column| column.iter().max().copied().unwrap_or(0) + 2).collect()
    };
    let fits = |rows: &usize| widths_of(*rows).iter().sum::<usize>() <= width + 2;
    let rows = (1..=cells.len()).find(fits).unwrap_or(cells.len()).max(1);
    let widths = widths_of(rows);
    (0..rows.min(cells.len()))
        .map(|row| {
            let mut line = String::new();
            for (column, width) in widths.iter().enumerate() {
                let Some(cell) = cells.get(column * rows + row) else { continue };
                line += cell;
                let padding = width - lengths[column * rows + row];
                line.extend(std::iter::repeat_n(' ', padding));
            }
            line.trim_end().to_owned()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fill_the_width_from_top_to_bottom() {
        let cells = ["a", "bb", "ccc", "d", "e"].map(str::to_owned);
        assert_eq!(in_columns(&cells, 80), ["a  bb  ccc  d  e"]);
        assert_eq!(in_columns(&cells, 10), ["a   ccc  e", "bb  d"]);
        assert_eq!(in_columns(&cells, 9), ["a    d", "bb   e", "ccc"]);
        assert_eq!(in_columns(&cells, 1), ["a", "bb", "ccc", "d", "e"]);
        assert!(in_columns(&[], 80).is_empty());
    }
}
