//! `extant find`: paths below a directory that pass every test.

use std::ffi::OsString;

use super::Operands;
use crate::failure::Failure;
use crate::session::Session;

/// Find files in an image by name, type, size and time
///
/// As in find(1), each test may be written with one dash, and N is exactly N, +N more, -N less. All
/// tests must hold; `!`, `-o` and brackets are not known.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The last part of the path matches this shell pattern
    #[arg(long, value_name = "PATTERN")]
    name: Vec<OsString>,
    /// The same, upper and lower case alike
    #[arg(long, value_name = "PATTERN")]
    iname: Vec<OsString>,
    /// The whole path matches this shell pattern
    #[arg(long, value_name = "PATTERN")]
    path: Vec<OsString>,
    /// Of one of these types, separated by commas: f d l b c p s
    #[arg(long = "type", value_name = "TYPES")]
    types: Option<String>,
    /// Of this size: N, +N or -N with a unit of c, w, b, k, M or G, rounded up; b, 512 bytes, without one
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    size: Vec<String>,
    /// Modified later than this file of the same image
    #[arg(long, value_name = "/PATH")]
    newer: Option<OsString>,
    /// With this many hard links
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    links: Option<String>,
    /// With this inode number
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    inum: Option<String>,
    /// Owned by this number
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    uid: Option<String>,
    /// Of the group of this number
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    gid: Option<String>,
    /// Permission bits exactly, -MODE all of them, /MODE any of them; octal
    #[arg(long, value_name = "MODE", allow_hyphen_values = true)]
    perm: Option<String>,
    /// A file without bytes, or a directory without entries
    #[arg(long)]
    empty: bool,
    /// No test below this depth; 0 is the operand itself
    #[arg(long, value_name = "LEVELS")]
    mindepth: Option<u32>,
    /// No deeper than this
    #[arg(long, value_name = "LEVELS")]
    maxdepth: Option<u32>,
    /// A zero byte after each path instead of a newline
    #[arg(long)]
    print0: bool,
    /// As `ls -l -i` shows it
    #[arg(long, conflicts_with_all = ["print0", "json"])]
    ls: bool,
    /// As JSON
    #[arg(long, conflicts_with = "print0")]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

/// Tests of find(1) that are written with one dash.
const TESTS: [&str; 16] = [
    "name", "iname", "path", "type", "size", "newer", "links", "inum", "uid", "gid", "perm",
    "empty", "mindepth", "maxdepth", "print0", "ls",
];

/// The command line with `-name` and its kin as `--name`, which is how the table knows them.
pub(crate) fn with_long_options(arguments: Vec<OsString>) -> Vec<OsString> {
    let long = |argument: OsString| match argument.to_str().and_then(|it| it.strip_prefix('-')) {
        Some(test) if TESTS.contains(&test) => format!("--{test}").into(),
        _ => argument,
    };
    arguments.into_iter().map(long).collect()
}

impl Args {
    pub(crate) fn run(self, _session: &mut Session) -> Result<(), Failure> {
        Err(Failure::not_built("walking an image"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_may_be_written_as_in_find() {
        let words = ["find", "disk.img:/", "-name", "-name*", "-size", "-5k", "-x"];
        let words = words.map(OsString::from).to_vec();
        let long = ["find", "disk.img:/", "--name", "-name*", "--size", "-5k", "-x"];
        assert_eq!(with_long_options(words), long.map(OsString::from).to_vec());
    }
}
