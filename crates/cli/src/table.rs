//! The table of commands: arguments, help, man pages and completions all come from here.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{ArgAction, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "lab")]
use crate::commands::lab;
use crate::commands::{
    build, cat, chmod, completions, cp, export, find, frag, fsck, info, ln, ls, man, map, mkdir,
    mkfs, mknod, mv, rm, setfattr, stat, touch, tree, truncate, tune, undo,
};
#[cfg(feature = "mount")]
use crate::commands::{mount, shutdown, umount};
use crate::failure::Failure;
use crate::session::Session;
use crate::{later, twins};

/// ext4 images made, read, changed and checked without the kernel
///
/// IMAGE is a file, a block device or a device URL: PATH#p2 is a partition, PATH?offset=N&size=N a
/// slice, linear:A,B?offset=N joined slices, lvm:A,B?vg=NAME&lv=NAME a linear logical volume,
/// crypt:PATH?key-file=FILE a LUKS container (with cipher=NAME a plain dm-crypt device).
/// IMAGE:/path names a file inside it.
#[derive(Debug, Parser)]
#[command(
    name = "extant",
    version,
    disable_help_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Extant {
    /// Print help
    #[arg(long, global = true, action = ArgAction::Help)]
    help: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Mkfs(mkfs::Args),
    Build(build::Args),
    Ls(ls::Args),
    Cat(cat::Args),
    Stat(stat::Args),
    Tree(tree::Args),
    Tune(tune::Args),
    Undo(undo::Args),
    Find(find::Args),
    Cp(cp::Args),
    Rm(rm::Args),
    Rmdir(rm::RmdirArgs),
    Mkdir(mkdir::Args),
    Ln(ln::Args),
    Mv(mv::Args),
    Chmod(chmod::Args),
    Chown(chmod::ChownArgs),
    Touch(touch::Args),
    Truncate(truncate::Args),
    Mknod(mknod::Args),
    Setfattr(setfattr::Args),
    Getfattr(setfattr::GetArgs),
    Export(export::Args),
    #[cfg(feature = "mount")]
    Mount(mount::Args),
    #[cfg(feature = "mount")]
    Umount(umount::Args),
    #[cfg(feature = "mount")]
    Shutdown(shutdown::Args),
    #[cfg(feature = "mount")]
    Freeze(shutdown::FreezeArgs),
    #[cfg(feature = "mount")]
    Thaw(shutdown::ThawArgs),
    Fsck(fsck::Args),
    Info(info::Args),
    Frag(frag::Args),
    Map(map::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    Man(man::Args),
    Completions(completions::Args),
}

impl Command {
    /// Its name in the table.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Mkfs(_) => "mkfs",
            Self::Build(_) => "build",
            Self::Ls(_) => "ls",
            Self::Cat(_) => "cat",
            Self::Stat(_) => "stat",
            Self::Tree(_) => "tree",
            Self::Tune(_) => "tune",
            Self::Undo(_) => "undo",
            Self::Find(_) => "find",
            Self::Cp(_) => "cp",
            Self::Rm(_) => "rm",
            Self::Rmdir(_) => "rmdir",
            Self::Mkdir(_) => "mkdir",
            Self::Ln(_) => "ln",
            Self::Mv(_) => "mv",
            Self::Chmod(_) => "chmod",
            Self::Chown(_) => "chown",
            Self::Touch(_) => "touch",
            Self::Truncate(_) => "truncate",
            Self::Mknod(_) => "mknod",
            Self::Setfattr(_) => "setfattr",
            Self::Getfattr(_) => "getfattr",
            Self::Export(_) => "export",
            #[cfg(feature = "mount")]
            Self::Mount(_) => "mount",
            #[cfg(feature = "mount")]
            Self::Umount(_) => "umount",
            #[cfg(feature = "mount")]
            Self::Shutdown(_) => "shutdown",
            #[cfg(feature = "mount")]
            Self::Freeze(_) => "freeze",
            #[cfg(feature = "mount")]
            Self::Thaw(_) => "thaw",
            Self::Fsck(_) => "fsck",
            Self::Info(_) => "info",
            Self::Frag(_) => "frag",
            Self::Map(_) => "map",
            #[cfg(feature = "lab")]
            Self::Lab(_) => "lab",
            Self::Man(_) => "man",
            Self::Completions(_) => "completions",
        }
    }

    fn run(self, session: &mut Session) -> Result<(), Failure> {
        match self {
            Self::Mkfs(args) => args.run(session),
            Self::Build(args) => args.run(session),
            Self::Ls(args) => args.run(session),
            Self::Cat(args) => args.run(session),
            Self::Stat(args) => args.run(session),
            Self::Tree(args) => args.run(session),
            Self::Tune(args) => args.run(session),
            Self::Undo(args) => args.run(session),
            Self::Find(args) => args.run(session),
            Self::Cp(args) => args.run(session),
            Self::Rm(args) => args.run(session),
            Self::Rmdir(args) => args.run(session),
            Self::Mkdir(args) => args.run(session),
            Self::Ln(args) => args.run(session),
            Self::Mv(args) => args.run(session),
            Self::Chmod(args) => args.run(session),
            Self::Chown(args) => args.run(session),
            Self::Touch(args) => args.run(session),
            Self::Truncate(args) => args.run(session),
            Self::Mknod(args) => args.run(session),
            Self::Setfattr(args) => args.run(session),
            Self::Getfattr(args) => args.run(session),
            Self::Export(args) => args.run(session),
            #[cfg(feature = "mount")]
            Self::Mount(args) => args.run(session),
            #[cfg(feature = "mount")]
            Self::Umount(args) => args.run(session),
            #[cfg(feature = "mount")]
            Self::Shutdown(args) => args.run(session),
            #[cfg(feature = "mount")]
            Self::Freeze(args) => args.run(session),
            #[cfg(feature = "mount")]
            Self::Thaw(args) => args.run(session),
            Self::Fsck(args) => args.run(session),
            Self::Info(args) => args.run(session),
            Self::Frag(args) => args.run(session),
            Self::Map(args) => args.run(session),
            #[cfg(feature = "lab")]
            Self::Lab(args) => lab::run(args, session),
            Self::Man(args) => args.run(session),
            Self::Completions(args) => args.run(session),
        }
    }
}

/// Runs the command line: as a twin where a link of its name called us, else by the table.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let twin = twins::called_as(arguments.first());
    ExitCode::from(match twin {
        Some(twin) => twin.run(arguments),
        None => run_by_table(arguments),
    })
}

fn run_by_table(arguments: Vec<OsString>) -> u8 {
    let command = arguments.get(1).and_then(|name| name.to_str());
    if let Some((name, refusal)) = command.and_then(|name| Some((name, later::refusal(name)?))) {
        return Session::new(format!("extant {name}"), false).close(Err(refusal));
    }
    let words = match command {
        Some("mkfs") if !arguments.iter().any(|word| word == "--help") => {
            // mke2fs's command line is read as mke2fs reads it, by the engine.
            let mut session = Session::new("extant mkfs", false);
            let outcome = mkfs::run(arguments.into_iter().skip(2), &mut session);
            return session.close(outcome);
        }
        Some("fsck") => {
            // e2fsck's exit codes for a command line that means nothing, too.
            let words = std::iter::once("extant fsck".into()).chain(arguments.into_iter().skip(2));
            return fsck::run_words("extant fsck", false, words.collect());
        }
        Some("find") => find::with_long_options(arguments),
        Some("frag") => frag::with_equals(arguments),
        _ => arguments,
    };
    match Extant::try_parse_from(words) {
        Ok(Extant { command, .. }) => {
            let mut session = Session::new(format!("extant {}", command.name()), false);
            let outcome = command.run(&mut session);
            session.close(outcome)
        }
        Err(error) => refuse(&error),
    }
}

/// Prints what clap has to say, help among it; the exit code.
pub(crate) fn refuse(error: &clap::Error) -> u8 {
    // Nobody left to tell is no further failure.
    let _ = error.print();
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// Parses the arguments of one command that is called by a name of its own.
pub(crate) fn parse_alone<A: clap::Args + FromArgMatches>(
    name: &'static str,
    arguments: Vec<OsString>,
) -> Result<A, clap::Error> {
    let command = clap::Command::new(name).disable_help_flag(true).max_term_width(100);
    let help = clap::Arg::new("help").long("help").help("Print help").action(ArgAction::Help);
    let mut command = A::augment_args(command).arg(help);
    let matches = command.try_get_matches_from_mut(arguments)?;
    A::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_table_is_consistent() {
        Extant::command().debug_assert();
    }

    #[test]
    fn every_command_is_called_by_its_name() {
        let table = Extant::command();
        let names = table.get_subcommands().map(|command| command.get_name().to_owned());
        for name in names {
            let about = table.find_subcommand(&name).and_then(|command| command.get_about());
            assert!(about.is_some(), "{name} has no line of help");
        }
    }

    #[cfg(all(feature = "lab", feature = "mount"))]
    /// Words of a line of shell: quotes are taken off; a comment or another command ends it.
    fn shell_words(line: &str) -> Vec<OsString> {
        let is_end = |word: &str| word.starts_with(['#', '|', '>', '&']) || word == "2>";
        let words = line.split_whitespace().take_while(|word| !is_end(word));
        words.map(|word| word.trim_matches('\'').into()).collect()
    }

    #[cfg(all(feature = "lab", feature = "mount"))]
    #[test]
    fn the_examples_of_the_readme_and_the_guide_parse() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let mut pages = std::fs::read_to_string(format!("{root}/README.md")).unwrap();
        for page in std::fs::read_dir(format!("{root}/docs/src/guide")).unwrap() {
            pages += &std::fs::read_to_string(page.unwrap().path()).unwrap();
        }
        let blocks = pages.split("```sh\n").skip(1).filter_map(|rest| rest.split("```").next());
        let lines = blocks.flat_map(str::lines).filter(|line| line.starts_with("extant "));
        let mut seen = 0;
        for line in lines {
            let words = match shell_words(line) {
                words if words[1] == "mkfs" => {
                    let read =
                        extant::rooms::image::mkfs::Options::parse(words.into_iter().skip(2));
                    assert!(read.is_ok(), "{line}: {read:?}");
                    seen += 1;
                    continue;
                }
                words if words[1] == "find" => find::with_long_options(words),
                words if words[1] == "frag" => frag::with_equals(words),
                words => words,
            };
            let parsed = Extant::try_parse_from(words);
            assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            seen += 1;
        }
        assert!(seen > 60, "the pages show {seen} commands");
    }
}
