//! `extant frag`: the extents of files, as filefrag shows them.

use std::ffi::OsString;

use super::Operands;
use crate::failure::Failure;
use crate::session::Session;

/// Show the extents of files in an image, as filefrag does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Each extent, with flags
    #[arg(short)]
    verbose: bool,
    /// Each extent, in the form of an extent-mapped file
    #[arg(short)]
    extents: bool,
    /// Count in units of this many bytes (`-b4096`); 1024 without a number
    #[arg(short, value_name = "BYTES", num_args = 0..=1, require_equals = true,
          default_missing_value = "1024")]
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
    /// The version
    #[arg(short = 'V')]
    version: bool,
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

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("showing extents"))
    }
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
    }
}
