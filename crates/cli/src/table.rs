//! The table of commands: arguments, help, man pages and completions all come from here.

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

#[cfg(feature = "lab")]
use crate::commands::lab;
use crate::commands::{
    build, cat, chattr, chmod, clone, commit, completions, cp, debugfs, defrag, df, diff, du,
    export, find, frag, fsck, history, import, info, install_links, journal, ln, ls, lsattr, man,
    map, mkdir, mkfs, mknod, mv, quota, recover, resize, rm, serve, setfattr, sh, stat, timeline,
    touch, tree, trim, truncate, tune, undelete, undo,
};
#[cfg(feature = "mount")]
use crate::commands::{mount, shutdown, umount};
use crate::failure::Failure;
use crate::session::Session;
use crate::{compat, help, parse, unimplemented};

/// How an image is named; the last part of the program's help.
const IMAGES: &str = "\
IMAGE is a file, a block device or a device URL; IMAGE:/path is a file inside it. URLs:
  PATH#p2                      a partition
  PATH?offset=N&size=N         a part of a file or device
  PATH?sb=N                    read by the backup superblock in block N
  linear:A,B?offset=N          parts joined
  lvm:A,B?vg=NAME&lv=NAME      a linear logical volume of LVM2
  crypt:PATH?key-file=FILE     a LUKS container; with cipher=NAME, plain dm-crypt
  qcow2:PATH                   a virtual disk; also vmdk:, vhd:, vhdx:, sparse: (only read)
  nbd://HOST:PORT/EXPORT       a network block device; nbd+unix:///EXPORT?socket=PATH
  https://HOST/PATH            an object of a server, only read; also s3://, gs://, az://
  overlay:PATH?upper=FILE      changes are kept in FILE, or in memory without it

'extant help COMMAND' shows the options of a command, and examples.";

/// Make, read, change, check and mount ext4 images without the kernel
#[derive(Debug, Parser)]
#[command(
    name = "extant",
    version,
    disable_help_flag = true,
    disable_help_subcommand = true,
    arg_required_else_help = true,
    max_term_width = 100,
    after_help = IMAGES
)]
pub(crate) struct Extant {
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
    Find(find::Args),
    Diff(diff::Args),
    Df(df::Args),
    Du(du::Args),
    Quota(quota::Args),
    Getfattr(setfattr::GetArgs),
    Lsattr(lsattr::Args),
    Export(export::Args),
    Undelete(undelete::Args),
    History(history::Args),
    Timeline(timeline::Args),
    Clone(clone::Args),
    Info(info::Args),
    Journal(journal::Args),
    Frag(frag::Args),
    Map(map::Args),
    Cp(cp::Args),
    Import(import::Args),
    Rm(rm::Args),
    Rmdir(rm::RmdirArgs),
    Mkdir(mkdir::Args),
    Ln(ln::Args),
    Mv(mv::Args),
    Chattr(chattr::Args),
    Chmod(chmod::Args),
    Chown(chmod::ChownArgs),
    Touch(touch::Args),
    Truncate(truncate::Args),
    Mknod(mknod::Args),
    Setfattr(setfattr::Args),
    Sh(sh::Args),
    Tune(tune::Args),
    Resize(resize::Args),
    Trim(trim::Args),
    Defrag(defrag::Args),
    Commit(commit::Args),
    Debugfs(debugfs::Args),
    Fsck(fsck::Args),
    Recover(recover::Args),
    Undo(undo::Args),
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
    Serve(serve::Args),
    #[cfg(feature = "lab")]
    Lab(lab::Args),
    InstallLinks(install_links::Args),
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
            Self::Resize(_) => "resize",
            Self::Trim(_) => "trim",
            Self::Defrag(_) => "defrag",
            Self::Serve(_) => "serve",
            Self::Commit(_) => "commit",
            Self::Debugfs(_) => "debugfs",
            Self::Undo(_) => "undo",
            Self::Find(_) => "find",
            Self::Diff(_) => "diff",
            Self::Df(_) => "df",
            Self::Du(_) => "du",
            Self::Quota(_) => "quota",
            Self::Cp(_) => "cp",
            Self::Import(_) => "import",
            Self::Rm(_) => "rm",
            Self::Rmdir(_) => "rmdir",
            Self::Mkdir(_) => "mkdir",
            Self::Ln(_) => "ln",
            Self::Mv(_) => "mv",
            Self::Lsattr(_) => "lsattr",
            Self::Chattr(_) => "chattr",
            Self::Chmod(_) => "chmod",
            Self::Chown(_) => "chown",
            Self::Touch(_) => "touch",
            Self::Truncate(_) => "truncate",
            Self::Mknod(_) => "mknod",
            Self::Setfattr(_) => "setfattr",
            Self::Sh(_) => "sh",
            Self::Getfattr(_) => "getfattr",
            Self::Export(_) => "export",
            Self::Undelete(_) => "undelete",
            Self::History(_) => "history",
            Self::Timeline(_) => "timeline",
            Self::Clone(_) => "clone",
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
            Self::Recover(_) => "recover",
            Self::Info(_) => "info",
            Self::Journal(_) => "journal",
            Self::Frag(_) => "frag",
            Self::Map(_) => "map",
            #[cfg(feature = "lab")]
            Self::Lab(_) => "lab",
            Self::InstallLinks(_) => "install-links",
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
            Self::Resize(args) => args.run(session),
            Self::Trim(args) => args.run(session),
            Self::Defrag(args) => args.run(session),
            Self::Serve(args) => args.run(session),
            Self::Commit(args) => args.run(session),
            Self::Clone(args) => args.run(session),
            Self::Tune(args) => args.run(session),
            Self::Debugfs(args) => args.run(session),
            Self::Undo(args) => args.run(session),
            Self::Find(args) => args.run(session),
            Self::Diff(args) => args.run(session),
            Self::Df(args) => args.run(session),
            Self::Du(args) => args.run(session),
            Self::Quota(args) => args.run(session),
            Self::Cp(args) => args.run(session),
            Self::Import(args) => args.run(session),
            Self::Rm(args) => args.run(session),
            Self::Rmdir(args) => args.run(session),
            Self::Mkdir(args) => args.run(session),
            Self::Ln(args) => args.run(session),
            Self::Mv(args) => args.run(session),
            Self::Lsattr(args) => args.run(session),
            Self::Chattr(args) => args.run(session),
            Self::Chmod(args) => args.run(session),
            Self::Chown(args) => args.run(session),
            Self::Touch(args) => args.run(session),
            Self::Truncate(args) => args.run(session),
            Self::Mknod(args) => args.run(session),
            Self::Setfattr(args) => args.run(session),
            Self::Sh(args) => args.run(run_in_shell, session),
            Self::Getfattr(args) => args.run(session),
            Self::Export(args) => args.run(session),
            Self::Undelete(args) => args.run(session),
            Self::History(args) => args.run(session),
            Self::Timeline(args) => args.run(session),
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
            Self::Recover(args) => args.run(session),
            Self::Info(args) => args.run(session),
            Self::Journal(args) => args.run(session),
            Self::Frag(args) => args.run(session),
            Self::Map(args) => args.run(session),
            #[cfg(feature = "lab")]
            Self::Lab(args) => lab::run(args, session),
            Self::InstallLinks(args) => args.run(session),
            Self::Man(args) => args.run(command(), session),
            Self::Completions(args) => args.run(command(), session),
        }
    }
}

/// The table with its help.
pub(crate) fn command() -> clap::Command {
    let table = help::with_help_of_all(Extant::command(), "");
    let template = help::template(&table);
    table.help_template(template)
}

/// Runs the command line: as a command of e2fsprogs where a link of its name called us, else by the
/// table.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let called = compat::called_as(arguments.first());
    ExitCode::from(match called {
        Some(command) => command.run(arguments),
        None => run_by_table(arguments),
    })
}

fn run_by_table(mut arguments: Vec<OsString>) -> u8 {
    let program = arguments.first().cloned();
    if let Some((name, refusal)) = compat::not_built(program.as_ref()) {
        return Session::new(name, true).close(Err(refusal));
    }
    // `extant help COMMAND` is `extant COMMAND --help`.
    if arguments.get(1).is_some_and(|word| word == "help") {
        arguments.remove(1);
        arguments.push("--help".into());
    }
    let command = arguments.get(1).and_then(|name| name.to_str());
    if let Some((name, refusal)) =
        command.and_then(|name| Some((name, unimplemented::refusal(name)?)))
    {
        return Session::new(format!("extant {name}"), false).close(Err(refusal));
    }
    let words = match command {
        Some("mkfs") if !arguments.iter().any(|word| word == "--help" || word == "-h") => {
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
        Some("chattr") => chattr::with_modes(arguments, 2),
        _ => arguments,
    };
    match parsed(words) {
        Ok(Extant { command, .. }) => {
            let mut session = Session::new(format!("extant {}", command.name()), false);
            let outcome = command.run(&mut session);
            session.close(outcome)
        }
        Err(error) => match compat::unknown(program.as_ref()) {
            Some(refusal) if error.kind() == ErrorKind::InvalidSubcommand => {
                let name = program.unwrap_or_default().to_string_lossy().into_owned();
                Session::new(name, false).close(Err(refusal))
            }
            _ => parse::refuse(&error),
        },
    }
}

/// Runs a command of `extant sh` on its image.
fn run_in_shell(words: Vec<OsString>, image: &OsStr, session: &mut Session) -> Result<(), Failure> {
    let words = match words.get(1).and_then(|name| name.to_str()) {
        Some("find") => find::with_long_options(words),
        Some("chattr") => chattr::with_modes(words, 2),
        _ => words,
    };
    match parsed(words) {
        Ok(Extant { command: Command::Cp(args) }) => args.in_shell(image)?.run(session),
        Ok(Extant { command }) => command.run(session),
        Err(error) => Err(Failure::silent(parse::refuse(&error))),
    }
}

fn parsed(words: Vec<OsString>) -> Result<Extant, clap::Error> {
    let mut table = command();
    let matches = table.try_get_matches_from_mut(words)?;
    Extant::from_arg_matches(&matches).map_err(|error| error.format(&mut table))
}

/// Parses a line of shell that calls us; quotes are taken off, and a comment or another command
/// ends it.
#[cfg(test)]
pub(crate) fn parse_line(line: &str) {
    let is_end = |word: &OsString| {
        let word = word.to_string_lossy();
        word.starts_with(['|', '<', '>', '&']) || word == "2>"
    };
    let commands = sh::split(line.as_bytes()).unwrap_or_else(|why| panic!("{line}: {why}"));
    let words = commands.into_iter().next().unwrap_or_default();
    let words: Vec<OsString> = words.into_iter().take_while(|word| !is_end(word)).collect();
    let words = match words.get(1).and_then(|it| it.to_str()) {
        Some("mkfs") => {
            let read = extant::rooms::image::mkfs::Options::parse(words.into_iter().skip(2));
            assert!(read.is_ok(), "{line}: {read:?}");
            return;
        }
        Some("find") => find::with_long_options(words),
        Some("frag") => frag::with_equals(words),
        Some("chattr") => chattr::with_modes(words, 2),
        _ => words,
    };
    let parsed = parsed(words);
    assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_called_by_its_name() {
        let table = command();
        let names = table.get_subcommands().map(|command| command.get_name().to_owned());
        for name in names {
            let about = table.find_subcommand(&name).and_then(|command| command.get_about());
            assert!(about.is_some(), "{name} has no line of help");
        }
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
            parse_line(line);
            seen += 1;
        }
        assert!(seen > 60, "the pages show {seen} commands");
    }
}
