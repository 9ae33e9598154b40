//! The words of one command line, as clap reads them.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgAction, Args, FromArgMatches};

use crate::{err_line, help};

/// Columns of a line of a usage text.
const USAGE_WIDTH: usize = 78;

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

/// Parses the arguments of a command that is called by its name in e2fsprogs. An unknown option, or
/// a request for help, is answered as these programs do: a message and the usage text.
pub(crate) fn parse_compat<A: Args + FromArgMatches>(
    name: &'static str,
    arguments: Vec<OsString>,
) -> Option<A> {
    match parse_alone(name, arguments) {
        Ok(args) => Some(args),
        Err(error) => {
            if error.kind() != ErrorKind::DisplayHelp {
                let text = error.to_string();
                let said = text.lines().take_while(|line| !line.is_empty());
                let said = said.map(str::trim).collect::<Vec<_>>().join(" ");
                err_line!("{name}: {}", said.trim_start_matches("error: "));
            }
            err_line!("{}", usage::<A>(name));
            None
        }
    }
}

/// The options and operands of a command in a few lines.
pub(crate) fn usage<A: Args>(name: &str) -> String {
    let command = A::augment_args(clap::Command::new("usage").disable_help_flag(true));
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let value = |arg: &clap::Arg| {
        let names = arg.get_value_names().unwrap_or_default();
        names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" ")
    };
    let is_flag = |arg: &clap::Arg| !arg.get_action().takes_values();
    let flags: String =
        shown().filter(|arg| is_flag(arg)).filter_map(clap::Arg::get_short).collect();
    let mut words = vec![format!("[-{flags}]")];
    for arg in shown().filter(|arg| !is_flag(arg)) {
        if let Some(short) = arg.get_short() {
            words.push(format!("[-{short} {}]", value(arg)));
        }
    }
    for operand in shown().filter(|arg| arg.is_positional()) {
        let is_repeated = matches!(operand.get_action(), ArgAction::Append);
        let several = if is_repeated { "..." } else { "" };
        words.push(format!("{}{several}", value(operand)));
    }
    let mut text = format!("Usage: {name}");
    let mut width = text.len();
    for word in words {
        if width + 1 + word.len() > USAGE_WIDTH {
            text.push_str("\n\t");
            width = 8;
        } else {
            text.push(' ');
            width += 1;
        }
        text.push_str(&word);
        width += word.len();
    }
    text
}
