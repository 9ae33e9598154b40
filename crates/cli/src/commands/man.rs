//! `extant man`: manual pages, made from the table of commands.

use std::fs;
use std::path::PathBuf;

use clap::Command;
use clap_mangen::Man;

use crate::failure::{At, Failure};
use crate::session::Session;

/// Make the manual pages in a directory, or print extant(1)
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Directory for extant.1, extant-ls.1 and the others
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Args {
    /// Writes the pages of the commands of `table`.
    pub(crate) fn run(self, mut table: Command, session: &mut Session) -> Result<(), Failure> {
        table.build();
        let Some(dir) = self.dir else {
            return session.out.bytes(&page(table)?);
        };
        fs::create_dir_all(&dir).at(&dir)?;
        for command in table.get_subcommands() {
            let name = format!("extant-{}", command.get_name());
            // The page is about `extant-ls`, what is typed is `extant ls`.
            let typed = format!("extant {}", command.get_name());
            let command = command.clone().name(name.clone()).bin_name(typed);
            let path = dir.join(name + ".1");
            fs::write(&path, page(command)?).at(&path)?;
        }
        let path = dir.join("extant.1");
        fs::write(&path, page(table)?).at(&path)
    }
}

/// How every command ends, in addition to what the table says.
const EXIT_STATUS: [(&str, &str); 4] = [
    ("0", "Success."),
    ("1", "An error, reported on standard error."),
    ("2", "A usage error. mkfs, and commands called by their names in e2fsprogs, exit with 1."),
    ("141", "The reader of standard output closed it."),
];

fn page(command: Command) -> Result<Vec<u8>, Failure> {
    let usage = command.clone().render_usage().to_string();
    let has_subcommands = command.get_subcommands().any(|inner| !inner.is_hide_set());
    let has_options = command.get_arguments().any(|argument| !argument.is_hide_set());
    let notes = command.get_after_help().map(ToString::to_string);
    let man = Man::new(command).source(concat!("extant ", env!("CARGO_PKG_VERSION")));
    let mut page = Vec::new();
    man.render_title(&mut page).map_err(Failure::new)?;
    man.render_name_section(&mut page).map_err(Failure::new)?;
    // clap_mangen's synopsis leaves out the names of values.
    page.extend(b".SH SYNOPSIS\n.nf\n");
    let usage = usage.trim_start_matches("Usage:").trim_start();
    for line in usage.lines() {
        page.extend(line.trim().replace('\\', "\\\\").replace('-', "\\-").bytes());
        page.push(b'\n');
    }
    page.extend(b".fi\n");
    man.render_description_section(&mut page).map_err(Failure::new)?;
    if has_options {
        man.render_options_section(&mut page).map_err(Failure::new)?;
    }
    if has_subcommands {
        man.render_subcommands_section(&mut page).map_err(Failure::new)?;
    }
    if let Some(notes) = notes {
        page.extend(b".SH NOTES\n");
        for line in notes.lines() {
            // A line that begins with a dot would be a request.
            let dot = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            let line = line.replace('\\', "\\\\").replace('-', "\\-");
            page.extend(format!("{dot}{line}\n").bytes());
        }
    }
    page.extend(b".SH EXIT STATUS\n");
    for (code, meaning) in EXIT_STATUS {
        page.extend(format!(".TP\n\\fB{code}\\fR\n{meaning}\n").bytes());
    }
    page.extend(
        b".SH SEE ALSO\n.BR ext4 (5),\n.BR mke2fs (8),\n.BR dumpe2fs (8),\n.BR filefrag (8)\n",
    );
    Ok(page)
}
