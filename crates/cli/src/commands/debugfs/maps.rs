//! `blocks`, `bmap`, `dump_extents` and `filefrag`: where a file lies.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use extant::debug::{DebugVolume, DirWalk, ExtentLine, MapStep, RawRecord};
use extant::rooms::ondisk::inode::FileType;
use extant::{InodeNo, inspect};

use super::checks::has_blocks;
use super::options::Options;
use super::shell::{Done, Refusal, Shell, at_file, failed, refuse};
use super::words::{Word, number, text};

pub(super) fn blocks(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let spec = shell.one_file(words, "blocks <file>")?;
    let number = shell.inode_of(words, spec)?;
    let volume = shell.volume(words)?;
    let record = volume.inode(number);
    let mut line = String::new();
    let walked = record.and_then(|record| {
        volume.walk_blocks(&record, &mut |piece| {
            match piece {
                MapStep::Data { start, len, .. } => {
                    (start..start.saturating_add(len)).for_each(|it| line += &format!("{it} "));
                }
                MapStep::Node { at, .. } => line += &format!("{at} "),
            }
            ControlFlow::Continue(())
        })
    });
    shell.print(line + "\n")?;
    walked.map_err(|error| at_file(spec, error))
}

pub(super) fn bmap(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: bmap [-a] <file> logical_blk [physical_blk]";
    let options = Options::read(words, "a", usage)?;
    shell.image(words)?;
    let (spec, logical, physical) = match options.operands[..] {
        [spec, logical] => (spec, logical, None),
        [spec, logical, physical] => (spec, logical, Some(physical)),
        _ => return Err(Refusal::Line(usage.to_owned())),
    };
    let block = |name: &str, word: &[u8]| {
        let wrong = || refuse(words, format_args!("Bad {name} block - {}", text(word)));
        number(word).ok_or_else(wrong)
    };
    let inode = shell.inode_of(words, spec)?;
    let logical = block("logical", logical)?;
    let physical = physical.map(|word| block("physical", word)).transpose()?;
    if options.has('a') && physical.is_some() {
        return Err(Refusal::Line("Can't set and allocate a block".to_owned()));
    }
    let doing = format!("mapping logical block {logical}");
    let found = if options.has('a') || physical.is_some() {
        let image = shell.writable(words)?;
        image.change(|volume| {
            let mut record = volume.inode(inode)?;
            match physical {
                Some(0) => volume.set_block(&mut record, logical, 0).map(|()| None),
                Some(to) => volume.set_block(&mut record, logical, to).map(|()| Some((to, false))),
                None => volume.allocate_block(&mut record, logical).map(Some),
            }
        })
    } else {
        let record = shell.record(words, inode)?;
        let volume = shell.volume(words)?;
        volume.map_block(&record, logical).map_err(|error| error.to_string())
    };
    // The empty line is theirs.
    let found = found.map_err(|error| failed(words, error, doing + "\n"))?;
    shell.print(match found {
        Some((block, true)) => format!("{block} (uninit)\n"),
        Some((block, false)) => format!("{block}\n"),
        None => "0\n".to_owned(),
    })
}

pub(super) fn dump_extents(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "Usage: dump_extents [-n] [-l] file";
    let options = Options::read(words, "nl", usage)?;
    let [spec] = options.operands[..] else {
        return Err(Refusal::Line(usage.to_owned()));
    };
    let record = shell.record_of(words, spec)?;
    if !record.is_extents() {
        let why = format!("{}: does not uses extent block maps", text(spec));
        return Err(Refusal::Line(why));
    }
    let volume = shell.volume(words)?;
    let digits = |number: u64| number.checked_ilog10().unwrap_or(0) as usize + 1;
    let block_size = u64::from(volume.geometry().block_size);
    let logical = digits(record.size().div_ceil(block_size).saturating_sub(1)).max(5);
    let physical = digits(volume.geometry().blocks_count).max(5);
    let (both_logical, both_physical) = (2 * logical + 3, 2 * physical + 3);
    let mut lines = format!(
        "Level Entries {:>both_logical$} {:>both_physical$} Length Flags\n",
        "Logical", "Physical"
    );
    let walked = volume.walk_extents(&record, &mut |line| {
        let is_left_out = line.is_leaf && options.has('n') || !line.is_leaf && options.has('l');
        if !is_left_out {
            lines += &extent_line(&line, logical, physical);
        }
        ControlFlow::Continue(())
    });
    shell.print(lines)?;
    walked.map_err(|error| failed(words, error, "getting extents"))
}

fn extent_line(line: &ExtentLine, logical: usize, physical: usize) -> String {
    let last = line.logical.saturating_add(line.len).saturating_sub(1);
    let head = format!(
        "{:>2}/{:>2} {:>3}/{:>3} {:>logical$} - {last:>logical$} {:>physical$}",
        line.level, line.depth, line.index, line.entries, line.logical, line.physical
    );
    match line.is_leaf {
        true => {
            let end = line.physical.saturating_add(line.len).saturating_sub(1);
            let flags = if line.is_unwritten { "Uninit" } else { "" };
            format!("{head} - {end:>physical$} {:>6} {flags}\n", line.len)
        }
        false => format!("{head}   {:>physical$} {:>6}\n", "", line.len),
    }
}

/// A list of `filefrag` in the making.
struct Frag<'v> {
    volume: &'v DebugVolume,
    is_verbose: bool,
    is_recursive: bool,
    lines: Vec<u8>,
    /// Directories that are still to be listed, with their paths.
    later: VecDeque<(InodeNo, Vec<u8>)>,
    problems: Vec<String>,
}

pub(super) fn filefrag(shell: &mut Shell<'_>, words: &[Word]) -> Done {
    let usage = "filefrag: Usage: filefrag [-dvr] file";
    let options = Options::read(words, "dvr", usage)?;
    let spec = match options.operands[..] {
        [] => None,
        [spec] => Some(spec),
        _ => return Err(Refusal::Line(usage.to_owned())),
    };
    let image = shell.image(words)?;
    let (inode, path) = match spec {
        Some(spec) => (image.inode_of(spec).map_err(|error| at_file(spec, error))?, spec.to_vec()),
        None => (image.cwd, b".".to_vec()),
    };
    let volume = &image.volume;
    let record = volume
        .inode(inode)
        .map_err(|error| failed(words, error, format_args!("reading inode {inode}")))?;
    let mut frag = Frag {
        volume,
        is_verbose: options.has('v'),
        is_recursive: options.has('r'),
        lines: Vec::new(),
        later: VecDeque::new(),
        problems: Vec::new(),
    };
    if record.is_dir() && !options.has('d') {
        frag.later.push_back((inode, path));
        while let Some((inode, path)) = frag.later.pop_front() {
            frag.list(inode, &path);
        }
    } else {
        frag.file(&record, &path);
    }
    frag.lines.push(b'\n');
    let Frag { lines, problems, .. } = frag;
    shell.print(lines)?;
    for problem in problems {
        shell.complain_and_go_on(refuse(words, problem))?;
    }
    Ok(())
}

impl Frag<'_> {
    fn list(&mut self, inode: InodeNo, path: &[u8]) {
        let mut found = Vec::new();
        let walked = self.volume.inode(inode).and_then(|record| {
            self.volume.walk_dir(&record, DirWalk::default(), &mut |item| {
                if item.name != b"." && item.name != b".." {
                    found.push((InodeNo(item.inode), item.name.to_vec()));
                }
                ControlFlow::Continue(())
            })
        });
        if let Err(error) = walked {
            self.problems.push(format!("{error} while calling ext2_dir_iterate"));
        }
        for (inode, name) in found {
            let path = [path, b"/", &name[..]].concat();
            match self.volume.inode(inode) {
                Ok(record) => {
                    self.file(&record, &path);
                    // A directory that is its own ancestor would be listed without end.
                    let depth = path.iter().filter(|byte| **byte == b'/').count();
                    if record.is_dir() && self.is_recursive && depth < MAX_DEPTH {
                        self.later.push_back((inode, path));
                    }
                }
                Err(error) => self.problems.push(format!("{error} while reading inode {inode}")),
            }
        }
    }

    fn file(&mut self, record: &RawRecord, path: &[u8]) {
        let mut rows: Vec<inspect::Extent> = Vec::new();
        let mut add = |logical: u64, start: u64, len: u64| {
            if let Some(last) = rows.last_mut()
                && last.logical + last.length == logical
                && last.physical.saturating_add(last.length) == start
            {
                last.length += len;
                return;
            }
            let (physical, length, flags) = (start, len, Vec::new());
            rows.push(inspect::Extent { logical, physical, length, flags, is_in_bytes: false });
        };
        let is_mapped = has_blocks(self.volume, record)
            || record.file_type() == Some(FileType::Symlink) && record.is_extents();
        if is_mapped {
            let walked = self.volume.walk_blocks(record, &mut |piece| {
                if let MapStep::Data { logical, start, len, .. } = piece {
                    add(logical, start, len);
                }
                ControlFlow::Continue(())
            });
            if let Err(error) = walked {
                self.problems.push(format!("{error} while iterating over blocks"));
            }
        }
        if self.is_verbose {
            self.rows(record, path, &rows);
        }
        let kind = if record.is_dir() { " (dir)" } else { "" };
        self.lines.extend_from_slice(path);
        self.lines.extend(format!(": {} contiguous extents{kind}\n", rows.len()).into_bytes());
    }

    fn rows(&mut self, record: &RawRecord, path: &[u8], rows: &[inspect::Extent]) {
        let geometry = self.volume.geometry();
        let sectors = u64::from(geometry.block_size) / 512;
        let blocks = record.blocks(geometry).checked_div(sectors).unwrap_or(0);
        let size = record.size();
        self.lines.push(b'\n');
        self.lines.extend_from_slice(path);
        let head = format!(
            " has {blocks} block(s), i_size is {size}\n ext logical physical expected  length\n"
        );
        self.lines.extend(head.into_bytes());
        let mut expected = None;
        for (index, row) in rows.iter().enumerate() {
            let shown = match expected {
                Some((logical, physical)) if logical == row.logical => format!("{physical}"),
                _ => String::new(),
            };
            expected = Some((row.logical + row.length, row.physical.saturating_add(row.length)));
            let line = format!(
                "{index:>4} {:>7} {:>8} {shown:>8} {:>7}\n",
                row.logical, row.physical, row.length
            );
            self.lines.extend(line.into_bytes());
        }
    }
}

/// Names of a path below which directories are not listed.
const MAX_DEPTH: usize = 256;
