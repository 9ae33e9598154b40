//! The words of one command line, as clap reads them.

use std::ffi::OsString;

use clap::{Args, FromArgMatches};

use crate::help;

/// Prints what clap says, help included; the exit code.
pub(crate) fn refuse(error: &clap::Error) -> u8 {
    // A closed standard error is no further failure.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Parses the arguments of one command that is called by a name of its own.
pub(crate) fn parse_alone<A: Args + FromArgMatches>(
    name: &'static str,
    arguments: Vec<OsString>,
) -> Result<A, clap::Error> {
    let command = clap::Command::new(name).disable_help_flag(true).max_term_width(100);
    // Of a command of e2fsprogs there are no examples.
    let words = name.strip_prefix("extant ").unwrap_or_default();
    let mut command = help::with_help(A::augment_args(command), words);
    let matches = command.try_get_matches_from_mut(arguments)?;
    A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}
