//! `cargo xtask book`: the book of `docs/src` as HTML in `target/book`.
//!
//! mdBook builds from a copy of the pages. In the copy a page that includes a file of the project
//! has its text, with links that lead to pages of the book; and the reference has a page for each
//! command, made from the program's own help.

mod pages;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::{Failure, machine};

/// The version of mdBook that the book was tried with.
const MDBOOK: &str = "0.5.4";
/// Files next to the pages that links lead to: the results of experiments.
const RESULTS: &str = "docs/experiments";

/// Build the book into target/book: installs mdBook, makes the command pages, checks every link
#[derive(clap::Args)]
pub(crate) struct Book {
    /// The program whose help becomes the command pages, instead of a release build
    #[arg(long, value_name = "PROGRAM")]
    extant: Option<PathBuf>,
}

impl Book {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mdbook = machine::install_tool(
            "mdbook",
            MDBOOK,
            &["--no-default-features", "--features", "search"],
        )?;
        let extant = match self.extant {
            Some(program) => fs::canonicalize(program)?,
            None => machine::release_binary()?,
        };
        let (sources, html) =
            (machine::target_dir().join("book-src"), machine::target_dir().join("book"));
        for dir in [&sources, &html] {
            if dir.exists() {
                fs::remove_dir_all(dir)?;
            }
        }
        let commands = pages::commands(&extant)?;
        pages::write(machine::workspace(), &sources, &commands)?;
        let mut build = Command::new(mdbook);
        build.arg("build").arg(&sources).arg("--dest-dir").arg(&html).stdin(Stdio::null());
        if !build.status()?.success() {
            return Err("mdBook failed".into());
        }
        let manual = Command::new(&extant).arg("man").arg(html.join("man")).status()?;
        if !manual.success() {
            return Err("the manual pages were not made".into());
        }
        copy(&machine::workspace().join(RESULTS), &html.join("experiments"))?;
        let dead = pages::dead_links(&html)?;
        dead.iter().for_each(|link| eprintln!("xtask: {link}"));
        println!("book: {}", html.join("index.html").display());
        Ok(ExitCode::from(u8::from(!dead.is_empty())))
    }
}

/// Copies a tree of files.
fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}
