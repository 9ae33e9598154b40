//! `extant frag`: the extents of files, as filefrag shows them.

use std::ffi::OsString;
use std::fs::File;

use extant::inspect::{Extent, data_extents, fragments, xattr_extents};
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{Follow, LoadedInode};
use serde::Serialize;

use super::Operands;
use crate::failure::{At, Failure};
use crate::output::JsonName;
use crate::reader::Image;
use crate::say;
use crate::session::Session;

/// Flags of FIEMAP for an extent, as far as they apply to an image.
const FLAGS: [&str; 5] = ["last", "unwritten", "not_aligned", "inline", "merged"];

/// Show the extents of files, as filefrag does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print each extent with its flags
    #[arg(short)]
    verbose: bool,
    /// Print each extent, in the format of extent-mapped files
    #[arg(short)]
    extents: bool,
    /// Unit of the output in bytes (`-b4096`, `-b1M`); 1024 without a number
    #[arg(short, value_name = "BYTES", num_args = 0..=1, require_equals = true,
          default_missing_value = "1024", value_parser = unit_of)]
    block_size: Option<u64>,
    /// Same as -b1024
    #[arg(short, conflicts_with = "block_size")]
    kilobytes: bool,
    /// Show the extended attributes instead of the data
    #[arg(short = 'x')]
    xattrs: bool,
    /// Print block numbers in hexadecimal
    #[arg(short = 'X')]
    hexadecimal: bool,
    /// Sync the image file first
    #[arg(short)]
    sync: bool,
    /// Print version; twice: the flags of extents, too
    #[arg(short = 'V', action = clap::ArgAction::Count)]
    version: u8,
    /// Refused: FIBMAP needs a mounted file system
    #[arg(short = 'B', hide = true)]
    fibmap: bool,
    /// Refused: the kernel's cache of extents
    #[arg(short = 'E', hide = true)]
    show_cache: bool,
    /// Refused: as above
    #[arg(short = 'P', hide = true)]
    preload_cache: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// The command line with `-b4096` as `-b=4096`: a word after `-b` is never its number.
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
    allowed.ok_or_else(|| "invalid block size (expected 1 to 1G)".to_owned())
}

/// Output for a file.
#[derive(Serialize)]
struct JsonFile {
    path: JsonName,
    inode: u32,
    size: u64,
    /// Bytes of the unit in which the extents count, but for those `inline`, which count bytes.
    unit: u64,
    fragments: usize,
    extents: Vec<Extent>,
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
            (self.fibmap, "-B: not supported: FIBMAP needs a mounted file system"),
            (self.show_cache, "-E: not supported: there is no extent status cache"),
            (self.preload_cache, "-P: not supported: there is no extent status cache"),
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
                return Err(image.failure(path, "not a regular file or directory"));
            }
            let unit = match (self.kilobytes, self.block_size) {
                (true, _) => 1024,
                (false, Some(size)) => size,
                (false, None) => image.volume.geometry().block_size.into(),
            };
            let rows = match self.xattrs {
                true => xattr_extents(&image.volume, &file, unit),
                false => data_extents(&image.volume, &file, unit),
            };
            let rows = rows.map_err(|error| image.failure(path, error))?;
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
        rows: &[Extent],
        session: &mut Session,
    ) -> Result<(), Failure> {
        // A file has whole blocks of the volume, in whatever unit they are counted; the twin's
        // plural is theirs.
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
        let mut before: Option<&Extent> = None;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    #[test]
    fn the_unit_is_a_number_at_once_or_1024() {
        let unit = |words: &[&str]| {
            let words = with_equals(words.iter().map(OsString::from).collect());
            let args = parse::parse_alone::<Args>("filefrag", words).unwrap();
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
