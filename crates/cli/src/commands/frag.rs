//! `extant frag`: the extents of files, as filefrag shows them.

use std::ffi::OsString;
use std::fs::File;

use extant_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE};
use extant_ondisk::{FileBlock, MAX_FILE_BLOCKS};
use extant_reader::read::inode::place;
use extant_reader::read::mapping::map;
use extant_reader::{Error, Follow, LoadedInode, Mapping, Target, VolumeRead};
use serde::Serialize;

use super::Operands;
use crate::failure::{At, Failure};
use crate::output::JsonName;
use crate::reader::Image;
use crate::say;
use crate::session::Session;

/// What FIEMAP may say of an extent, as far as it applies to an image.
const FLAGS: [&str; 5] = ["last", "unwritten", "not_aligned", "inline", "merged"];

/// Where `i_block` begins in an inode.
const I_BLOCK_AT: u64 = 0x28;

/// Show the extents of files in an image, as filefrag does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Each extent, with flags
    #[arg(short)]
    verbose: bool,
    /// Each extent, in the form of an extent-mapped file
    #[arg(short)]
    extents: bool,
    /// Count in units of this many bytes (`-b4096`, `-b1M`); 1024 without a number
    #[arg(short, value_name = "BYTES", num_args = 0..=1, require_equals = true,
          default_missing_value = "1024", value_parser = unit_of)]
    block_size: Option<u64>,
    /// The same as -b1024
    #[arg(short, conflicts_with = "block_size")]
    kilobytes: bool,
    /// The blocks of the extended attributes instead of the data
    #[arg(short = 'x')]
    xattrs: bool,
    /// Block numbers in hexadecimal
    #[arg(short = 'X')]
    hexadecimal: bool,
    /// Have the image's file written out by this machine before it is read
    #[arg(short)]
    sync: bool,
    /// The version; twice: the flags of extents, too
    #[arg(short = 'V', action = clap::ArgAction::Count)]
    version: u8,
    /// Refused: FIBMAP asks a kernel, and there is none behind an image
    #[arg(short = 'B', hide = true)]
    fibmap: bool,
    /// Refused: the kernel's cache of extents
    #[arg(short = 'E', hide = true)]
    show_cache: bool,
    /// Refused: as above
    #[arg(short = 'P', hide = true)]
    preload_cache: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// The command line with `-b4096` as `-b=4096`: a word behind `-b` is never its number.
pub(crate) fn with_equals(arguments: Vec<OsString>) -> Vec<OsString> {
    let number = |argument: OsString| match argument.to_str().and_then(|it| it.strip_prefix("-b")) {
        Some(digits) if digits.starts_with(|it: char| it.is_ascii_digit()) => {
            format!("-b={digits}").into()
        }
        _ => argument,
    };
    arguments.into_iter().map(number).collect()
}

/// A number of bytes, with `K`, `M` or `G` for powers of 1024.
fn unit_of(text: &str) -> Result<u64, String> {
    let (digits, shift) = match text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']) {
        Some(digits) if text.ends_with(['k', 'K']) => (digits, 10),
        Some(digits) if text.ends_with(['m', 'M']) => (digits, 20),
        Some(digits) => (digits, 30),
        None => (text, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    let allowed = bytes.filter(|bytes| (1..=1 << 30).contains(bytes));
    allowed.ok_or_else(|| "1 to 1G bytes are possible".to_owned())
}

/// A run of a file as FIEMAP would tell it. Numbers count units: blocks, or bytes where it is not aligned.
#[derive(Clone, Debug, Serialize)]
struct Row {
    logical: u64,
    physical: u64,
    length: u64,
    flags: Vec<&'static str>,
    /// Counted in bytes: it lies in the inode.
    #[serde(skip)]
    is_in_bytes: bool,
}

impl Row {
    /// Where the next run would have to be so that the file is in one piece, when it is not there: at a distance that leaves
    /// room for the hole between the two. Right behind this one will do too.
    fn missed_by(&self, next: &Self) -> Option<u64> {
        let behind = self.physical.saturating_add(self.length);
        let expected = self.physical.saturating_add(next.logical.saturating_sub(self.logical));
        (next.physical != expected && next.physical != behind).then_some(expected)
    }
}

/// What is shown of a file.
#[derive(Serialize)]
struct JsonFile {
    path: JsonName,
    inode: u32,
    size: u64,
    /// Bytes of the unit in which the extents count, but for those `inline`, which count bytes.
    unit: u64,
    fragments: usize,
    extents: Vec<Row>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.version > 0 {
            // On standard output, as filefrag's.
            let version = session.version();
            say!(session, "{version}")?;
            if self.version > 1 {
                say!(session, "supported: {}", FLAGS.join(","))?;
            }
            return Ok(());
        }
        let refused = [
            (self.fibmap, "-B: FIBMAP asks a kernel, and an image is read without one"),
            (self.show_cache, "-E: an image has no kernel's cache of extents"),
            (self.preload_cache, "-P: an image has no kernel's cache of extents"),
        ];
        if let Some((_, why)) = refused.iter().find(|(is_asked, _)| *is_asked) {
            return Err(Failure::new(why));
        }
        if self.sync {
            for inside in self.operands.inside()? {
                for part in &inside.image.parts {
                    File::open(&part.path).and_then(|file| file.sync_all()).at(&part.path)?;
                }
            }
        }
        let mut files = Vec::new();
        let mut is_first = true;
        self.operands.each(session, |image, path, session| {
            let file = image.resolve(path, Follow::Yes)?;
            if !matches!(file.file_type(), FileType::Regular | FileType::Directory) {
                return Err(image.failure(path, "neither a file nor a directory"));
            }
            let unit = match (self.kilobytes, self.block_size) {
                (true, _) => 1024,
                (false, Some(size)) => size,
                (false, None) => image.volume.geometry().block_size.into(),
            };
            let rows = match self.xattrs {
                true => xattr_rows(image, path, &file, unit)?,
                false => data_rows(image, path, &file, unit)?,
            };
            let fragments = fragments(&rows);
            if self.json {
                let (path, inode) = (path.into(), file.number.0);
                files.push(JsonFile {
                    path,
                    inode,
                    size: file.size,
                    unit,
                    fragments,
                    extents: rows,
                });
                return Ok(());
            }
            let name = image.place(path);
            if self.verbose || self.extents {
                if std::mem::take(&mut is_first) {
                    say!(session, "Filesystem type is: ef53")?;
                    if !file.is_extent_mapped() {
                        let groups = image.volume.geometry().groups_count;
                        say!(session, "Filesystem cylinder groups approximately {groups}")?;
                    }
                }
                self.show_rows(&name, image, &file, unit, &rows, session)?;
            }
            let plural = if fragments == 1 { "" } else { "s" };
            say!(session, "{name}: {fragments} extent{plural} found")
        })?;
        match self.json {
            true => session.out.json_array(|element| files.iter().try_for_each(element)),
            false => Ok(()),
        }
    }

    fn show_rows(
        &self,
        name: &str,
        image: &Image,
        file: &LoadedInode,
        unit: u64,
        rows: &[Row],
        session: &mut Session,
    ) -> Result<(), Failure> {
        // A file has whole blocks of the volume, in whatever unit they are counted; the twin's plural is theirs.
        let block_size = u64::from(image.volume.geometry().block_size);
        let whole_blocks = file.size.div_ceil(block_size);
        let blocks = whole_blocks.saturating_mul(block_size).div_ceil(unit);
        let plural = if whole_blocks == 1 { "" } else { "s" };
        say!(
            session,
            "File size of {name} is {} ({blocks} block{plural} of {unit} bytes)",
            file.size
        )?;
        if rows.is_empty() {
            return Ok(());
        }
        let title = " ext:     logical_offset:        physical_offset: length:   expected: flags:";
        say!(session, "{title}")?;
        let mut before: Option<&Row> = None;
        for (at, row) in rows.iter().enumerate() {
            let number = |number: u64, width: usize| match self.hexadecimal {
                true => format!("{number:>width$x}"),
                false => format!("{number:>width$}"),
            };
            let expected = match before.and_then(|before| before.missed_by(row)) {
                Some(place) => number(place, 10) + ":",
                None => " ".repeat(11),
            };
            let last = |start: u64| start.saturating_add(row.length).saturating_sub(1);
            let ends_file =
                last(row.logical).saturating_add(1).saturating_mul(match row.is_in_bytes {
                    true => 1,
                    false => unit,
                }) >= file.size;
            let space = if row.flags.is_empty() { "" } else { " " };
            let end = if ends_file && !self.xattrs { ",eof" } else { "" };
            say!(
                session,
                "{at:>4}: {}..{}: {}..{}: {}: {expected}{space}{}{end}",
                number(row.logical, 8),
                number(last(row.logical), 8),
                number(row.physical, 10),
                number(last(row.physical), 10),
                number(row.length, 6),
                row.flags.join(",")
            )?;
            before = Some(row);
        }
        Ok(())
    }
}

/// Pieces that the file is in.
fn fragments(rows: &[Row]) -> usize {
    let breaks = rows.windows(2).filter(|pair| pair[0].missed_by(&pair[1]).is_some());
    breaks.count() + usize::from(!rows.is_empty())
}

/// The runs of the data: one for each extent of the tree; of a block map as long as they lie together (`merged`).
fn data_rows(
    image: &Image,
    path: &[u8],
    file: &LoadedInode,
    unit: u64,
) -> Result<Vec<Row>, Failure> {
    if file.is_inline() {
        let at = place_in_inode(image, path, file, I_BLOCK_AT)?;
        let flags = vec!["last", "not_aligned", "inline"];
        let row = Row { logical: 0, physical: at, length: file.size, flags, is_in_bytes: true };
        return Ok(if file.size > 0 { vec![row] } else { Vec::new() });
    }
    let failure = |error: Error| image.failure(path, error);
    let volume = &image.volume;
    let block_size = u64::from(volume.geometry().block_size);
    let mut rows = Vec::new();
    let mut add = |mapping: Mapping, is_merged: bool| {
        let Some(start) = mapping.physical() else { return };
        let unwritten = matches!(mapping.target, Target::Unwritten(_));
        let mut flags = Vec::new();
        flags.extend(unwritten.then_some("unwritten"));
        flags.extend(is_merged.then_some("merged"));
        let in_units = |blocks: u64| blocks.saturating_mul(block_size) / unit;
        rows.push(Row {
            logical: in_units(mapping.block.0),
            physical: in_units(start.0),
            length: mapping.len.saturating_mul(block_size).div_ceil(unit),
            flags,
            is_in_bytes: false,
        });
    };
    if !file.is_extent_mapped() {
        for mapping in volume.extents(file.number).map_err(failure)? {
            add(mapping.map_err(failure)?, true);
        }
    } else {
        // A file that maps more than there is maps something twice, perhaps without an end.
        let mut left = volume.geometry().blocks_count.saturating_mul(2);
        let mut next = FileBlock(0);
        while next.0 < MAX_FILE_BLOCKS {
            let mapping = map(volume, file, next).map_err(failure)?;
            next = mapping.end();
            let cost = if mapping.is_hole() { 1 } else { mapping.len };
            left = left.checked_sub(cost).ok_or_else(|| {
                image.failure(path, "the file maps more blocks than the volume has")
            })?;
            add(mapping, false);
        }
    }
    if let Some(last) = rows.last_mut() {
        last.flags.insert(0, "last");
    }
    Ok(rows)
}

/// Where the extended attributes are: behind the inode's fields, or in their block. As FIEMAP does, the first that is there.
fn xattr_rows(
    image: &Image,
    path: &[u8],
    file: &LoadedInode,
    unit: u64,
) -> Result<Vec<Row>, Failure> {
    let geometry = image.volume.geometry();
    if !file.xattr_space.is_empty() {
        let offset = GOOD_OLD_INODE_SIZE + file.extra_isize;
        let physical = place_in_inode(image, path, file, u64::from(offset))?;
        let length = file.xattr_space.len() as u64;
        let flags = vec!["last", "not_aligned", "inline"];
        return Ok(vec![Row { logical: 0, physical, length, flags, is_in_bytes: true }]);
    }
    if file.file_acl.0 == 0 {
        return Ok(Vec::new());
    }
    Ok(vec![Row {
        logical: 0,
        physical: geometry.byte_of(file.file_acl) / unit,
        length: u64::from(geometry.block_size).div_ceil(unit),
        flags: vec!["last"],
        is_in_bytes: false,
    }])
}

/// The byte of the volume at which a part of an inode's record lies.
fn place_in_inode(
    image: &Image,
    path: &[u8],
    file: &LoadedInode,
    offset: u64,
) -> Result<u64, Failure> {
    let geometry = image.volume.geometry();
    let place = place(&image.volume, file.number).map_err(|error| image.failure(path, error))?;
    Ok(geometry.byte_of(place.block) + place.bytes(geometry).start as u64 + offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    #[test]
    fn the_unit_is_a_number_at_once_or_1024() {
        let unit = |words: &[&str]| {
            let words = with_equals(words.iter().map(OsString::from).collect());
            let args = table::parse_alone::<Args>("filefrag", words).unwrap();
            (args.block_size, args.operands.files.len())
        };
        assert_eq!(unit(&["filefrag", "-v", "disk.img:/a"]), (None, 1));
        assert_eq!(unit(&["filefrag", "-b", "disk.img:/a"]), (Some(1024), 1));
        assert_eq!(unit(&["filefrag", "-b4096", "-v", "disk.img:/a"]), (Some(4096), 1));
        assert_eq!(unit(&["filefrag", "-b2K", "disk.img:/a"]), (Some(2048), 1));
        assert_eq!(unit(&["filefrag", "-b1G", "disk.img:/a"]), (Some(1 << 30), 1));
        assert!(
            unit_of("2G").is_err() && unit_of("0").is_err() && unit_of("17592186044416m").is_err()
        );
    }
}
