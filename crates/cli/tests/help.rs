//! The catalogue of help texts: what every command prints for `--help`, in one file.
//!
//! `EXTANT_BLESS=1 cargo test --workspace --test help` writes the file; without the variable the
//! test compares. Messages have a catalogue of their own (`messages` of xtask's tests).
#![cfg(all(feature = "lab", feature = "mount"))]

use std::fs;
use std::path::Path;
use std::process::Command;

const CATALOGUE: &str = "docs/help.txt";

fn help(words: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
    let output = command.args(words).arg("--help").output().expect("the program runs");
    assert!(output.status.success(), "{words:?} --help: {}", output.status);
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The commands that a help text lists: an indented name after `Commands:`, up to the next part.
fn subcommands(help: &str) -> Vec<String> {
    let lists = help.lines().skip_while(|line| !line.ends_with("ommands:"));
    let lines = lists.take_while(|line| !line.starts_with("Options:"));
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let is_name = |name: &&str| !name.is_empty() && *name != "help";
    names.filter(is_name).map(str::to_owned).collect()
}

fn add(words: &[String], page: &mut String) {
    let text = help(words);
    let rule = "=".repeat(8);
    let title = [&["extant".to_owned()], words].concat().join(" ");
    *page += &format!("\n{rule} {title}\n");
    // Trailing blanks are clap's.
    page.extend(text.lines().map(|line| format!("{}\n", line.trim_end())));
    for name in subcommands(&text) {
        add(&[words, &[name]].concat(), page);
    }
}

#[test]
fn the_catalogue_has_every_help_text() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a workspace");
    let path = workspace.join(CATALOGUE);
    let mut page = "Help texts of the program.\n\
        Written by `EXTANT_BLESS=1 cargo test --workspace --test help`.\n"
        .to_owned();
    add(&[], &mut page);
    if std::env::var_os("EXTANT_BLESS").is_some() {
        fs::write(&path, page).expect("the catalogue is written");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    let changed = page.lines().zip(kept.lines()).find(|(new, old)| new != old);
    assert!(
        page == kept,
        "{CATALOGUE} is not up to date, first at {changed:?}: EXTANT_BLESS=1 cargo test --workspace --test help"
    );
}
