//! `extant lab`: the commands of the crate `extant-lab`.

use extant_lab::commands::{CommandError, Console};

use crate::failure::Failure;
use crate::output::write_failure;
use crate::session::Session;

pub(crate) use extant_lab::commands::Args;

/// The exit code of a program that SIGINT ended, as a shell shows it: 128 + 2.
const INTERRUPTED: u8 = 130;

/// Runs a command of the lab.
pub(crate) fn run(args: Args, session: &mut Session) -> Result<(), Failure> {
    let mut console = Console { out: &mut session.out, called: &session.called };
    args.run(&mut console).map_err(|error| match error {
        CommandError::Failed(sentence) => Failure::new(sentence),
        CommandError::Usage(sentence) => Failure::usage(sentence),
        CommandError::Interrupted(sentence) => Failure::new(sentence).with_code(INTERRUPTED),
        CommandError::Output(error) => write_failure(error),
    })
}
