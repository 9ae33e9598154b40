//! `extant lab`: experiments on file systems.

mod compare;
mod ffsb;
mod large;
mod list;
mod quick;
mod report;
mod run;
mod scaled;
mod summary;
mod vm;

use crate::failure::Failure;
use crate::session::Session;

/// Run experiments on file systems and measure them
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::Args),
    Run(run::Args),
    Quick(quick::Args),
    Large(large::Args),
    Report(report::Args),
    Summary(summary::Args),
    Compare(compare::Args),
    Ffsb(ffsb::Args),
    Vm(vm::Args),
    /// A guest's side of `lab vm run`: cells come from standard input
    #[command(hide = true)]
    Guest,
    /// One run of one target, for `lab run`: what to do comes from standard input
    #[command(hide = true)]
    Cell,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        match self.command {
            Command::List(args) => args.run(session),
            Command::Run(args) => args.run(session),
            Command::Quick(args) => args.run(session),
            Command::Large(args) => args.run(session),
            Command::Report(args) => args.run(session),
            Command::Summary(args) => args.run(session),
            Command::Compare(args) => args.run(session),
            Command::Ffsb(args) => args.run(session),
            Command::Vm(args) => args.run(session),
            Command::Guest => extant_lab::vm::serve().map_err(Failure::new),
            Command::Cell => extant_lab::cell::serve().map_err(Failure::new),
        }
    }
}
