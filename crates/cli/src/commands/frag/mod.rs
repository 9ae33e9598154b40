//! `extant frag`: the extents of files, as filefrag shows them.

mod host;
mod rows;

use std::ffi::OsString;
use std::fs::File;

use extant::inspect::{Extent, ExtentsError, data_extents, fragments, xattr_extents};
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{Follow, LoadedInode};
use serde::Serialize;

use super::Operands;
use crate::failure::{At, Failure};
use crate::output::JsonName;
use crate::reader::Image;
use crate::say;
use crate::session::Session;
use host::HostFiles;
use rows::{Row, Rows, expected};

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
    /// Of files of the host, by the name filefrag: ask block by block (FIBMAP)
    #[arg(short = 'B')]
    fibmap: bool,
    /// Of files of the host, by the name filefrag: show ext4's cache of extents
    #[arg(short = 'E')]
    show_cache: bool,
    /// Of files of the host, by the name filefrag: fill ext4's cache of extents
    #[arg(short = 'P')]
    preload_cache: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// The version, on standard output as filefrag's, and the flags of extents.
pub(crate) fn say_version(with_flags: bool, session: &mut Session) -> Result<(), Failure> {
    let version = session.version();
    say!(session, "{version}")?;
    match with_flags {
        true => say!(session, "supported: {}", host::flag_names()),
        false => Ok(()),
    }
}

/// The command line with `-b4096` as `-b=4096`: a word after `-b` is never its number.
pub(crate) fn with_equals(arguments: Vec<OsString>) -> Vec<OsString> {
    let number = |argument: OsString| match argument.to_str().and_then(|it| it.strip_prefix("-b")) {
        Some(size) if !size.is_empty() => format!("-b={size}").into(),
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
            return say_version(self.version > 1, session);
        }
        // Of filefrag's operands an existing file of the host is that file, not an image's root.
        if session.is_compat && self.operands.image.is_none() {
            let is_host = |name: &OsString| host::is_host_file(name);
            if self.operands.files.iter().all(is_host) {
                if self.json {
                    return Err(Failure::new("--json: only for files of images"));
                }
                return self.host_files().show(session);
            }
            if self.operands.files.iter().any(is_host) {
                let why = "files of the host and of images: name them in separate calls";
                return Err(Failure::new(why));
            }
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
            let rows = self.extents_of(image, &file, unit);
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
                self.show_rows(&name, image, &file, unit, session)?;
            }
            let plural = if fragments == 1 { "" } else { "s" };
            say!(session, "{name}: {fragments} extent{plural} found")
        })?;
        match self.json {
            true => session.out.json_array(|element| files.iter().try_for_each(element)),
            false => Ok(()),
        }
    }

    /// The files of the host that are meant.
    fn host_files(&self) -> HostFiles<'_> {
        HostFiles {
            names: &self.operands.files,
            verbose: self.verbose,
            extents: self.extents,
            unit: self.block_size.or(self.kilobytes.then_some(1024)),
            is_hexadecimal: self.hexadecimal,
            sync: self.sync,
            xattrs: self.xattrs,
            fibmap: self.fibmap,
            show_cache: self.show_cache,
            preload_cache: self.preload_cache,
        }
    }

    fn show_rows(
        &self,
        name: &str,
        image: &Image,
        file: &LoadedInode,
        unit: u64,
        session: &mut Session,
    ) -> Result<(), Failure> {
        // In bytes; of the output a unit is a power of two.
        let extents = self.extents_of(image, file, 1).map_err(|why| Failure::at(name, why))?;
        let (size, shift) = (file.size, unit.ilog2());
        let rows = Rows { shift, is_hexadecimal: self.hexadecimal, is_cache: false, size };
        // A file has whole blocks of the volume, in whatever unit they are counted; the twin's
        // plural is theirs.
        let block_size = u64::from(image.volume.geometry().block_size);
        let whole_blocks = file.size.div_ceil(block_size);
        let blocks = whole_blocks.saturating_mul(block_size) >> shift;
        let plural = if whole_blocks == 1 { "" } else { "s" };
        let unit = 1_u64 << shift;
        say!(session, "File size of {name} is {size} ({blocks} block{plural} of {unit} bytes)")?;
        if !extents.is_empty() {
            say!(session, "{}", rows.title())?;
        }
        for (at, (extent, expected)) in extents.iter().zip(expected(&extents)).enumerate() {
            say!(session, "{}", rows.line(at, &Row { extent, expected, is_nowhere: false }))?;
        }
        Ok(())
    }

    fn extents_of(
        &self,
        image: &Image,
        file: &LoadedInode,
        unit: u64,
    ) -> Result<Vec<Extent>, ExtentsError> {
        match self.xattrs {
            true => xattr_extents(&image.volume, file, unit),
            false => data_extents(&image.volume, file, unit),
        }
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
