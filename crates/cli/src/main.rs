//! The command `extant`: ext4 images made, read, changed and checked without the kernel.
//!
//! [`table`] is the one table of commands: parsing, help, man pages and completions come from it.
//! Each command is a module under `commands` with its arguments and its `run`.
#![forbid(unsafe_code)]

mod block_unit;
mod commands;
mod compat;
mod deleted;
mod describe;
mod failure;
mod file_type;
mod finding_json;
mod flagged_files;
mod free_extents;
mod help;
mod image_glob;
mod image_path;
mod journal_device;
mod lines;
mod mode;
mod named_view;
mod output;
mod output_file;
mod owners;
mod parse;
mod progress;
mod reader;
mod salvage;
mod sandbox;
mod session;
mod sources;
mod table;
mod terminal;
mod time;
mod unimplemented;
mod waiting;
mod writable_image;

use std::process::ExitCode;

/// With glibc's allocator `import` takes a quarter longer.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    table::run(std::env::args_os().collect())
}
