//! `extant completions`: what a shell completes, made from the table of commands.

use clap_complete::Shell;

use crate::failure::Failure;
use crate::session::Session;

/// Print the completion script of a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

impl Args {
    /// Writes the completions of the commands of `table`.
    pub(crate) fn run(
        self,
        mut table: clap::Command,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut table, "extant", &mut script);
        session.out.bytes(&script)
    }
}
