//! The command `extant`: ext4 images made, read, changed and checked without the kernel.
//!
//! [`table`] is the one table of commands: parsing, help, man pages and completions come from it.
//! Each command is a module under `commands` with its arguments and its `run`.
#![forbid(unsafe_code)]

mod commands;
mod describe;
mod editor;
mod failure;
mod glob;
mod help;
mod inside;
mod journal_device;
mod later;
mod mode;
mod output;
mod parse;
mod progress;
mod reader;
mod sandbox;
mod session;
mod survey;
mod table;
mod target;
mod terminal;
mod time;
mod twins;
mod waiting;

use std::process::ExitCode;

fn main() -> ExitCode {
    table::run(std::env::args_os().collect())
}
