//! `extant completions`: what a shell completes, made from the table of commands.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::failure::Failure;
use crate::session::Session;
use crate::table::Extant;

/// Make the completions of a shell
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    shell: Shell,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Extant::command(), "extant", &mut script);
        session.out.bytes(&script)
    }
}
