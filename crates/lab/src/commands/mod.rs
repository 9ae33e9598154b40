//! `extant lab`: experiments on file systems.

mod compare;
mod console;
mod ffsb;
mod large;
mod list;
mod quick;
mod report;
mod run;
mod scaled;
mod summary;
mod vm;

pub use console::{CommandError, Console};

/// Run experiments on file systems and measure them
#[derive(Debug, clap::Args)]
pub struct Args {
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
    /// Runs the command.
    ///
    /// # Errors
    /// See [`CommandError`].
    pub fn run(self, console: &mut Console<'_>) -> Result<(), CommandError> {
        match self.command {
            Command::List(args) => args.run(console),
            Command::Run(args) => args.run(console),
            Command::Quick(args) => args.run(console),
            Command::Large(args) => args.run(console),
            Command::Report(args) => args.run(console),
            Command::Summary(args) => args.run(console),
            Command::Compare(args) => args.run(console),
            Command::Ffsb(args) => args.run(console),
            Command::Vm(args) => args.run(console),
            Command::Guest => crate::vm::serve().map_err(CommandError::new),
            Command::Cell => crate::cell::serve().map_err(CommandError::new),
        }
    }
}
