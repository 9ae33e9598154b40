//! Test helpers: reference tools, loop mounts, scratch directories, trees and their snapshots.
//!
//! A dev-dependency only. A test that lacks root, a tool or the corpora says so with [`skip!`] and
//! passes; `cargo xtask test` lists what was skipped.
//!
//! ```no_run
//! use extant_testkit::{LoopMount, Scratch, TreeSnapshot, assert_same_tree, e2fsck_fn, skip};
//!
//! fn an_image_mounts_as_its_source() {
//!     if !extant_testkit::is_root() {
//!         skip!("a loop mount needs root");
//!     }
//!     let scratch = Scratch::new();
//!     let (source, image) = (scratch.join("source"), scratch.join("disk.img"));
//!     extant_testkit::tree::grow(&source, 7, &Default::default()).unwrap();
//!     // … build `image` from `source` …
//!     e2fsck_fn(&image).unwrap();
//!     let mount = LoopMount::new(&image, "ro,noload").unwrap();
//!     let found = TreeSnapshot::of_dir(mount.path()).unwrap().without("lost+found");
//!     assert_same_tree(&TreeSnapshot::of_dir(&source).unwrap(), &found);
//! }
//! ```
#![forbid(unsafe_code)]

mod bad_directory;
mod catalogue;
pub mod fuzz;
pub mod history;
pub mod link;
mod loop_mount;
mod port;
mod scratch;
mod snapshot;
mod tool;
pub mod tree;

pub use bad_directory::{BadBlock, BadDirectory};
pub use catalogue::CataloguePart;
pub use loop_mount::{Flush, LoopDevice, LoopMount, copied, left_dirty};
pub use port::server_on_port;
pub use scratch::{Scratch, TempImage, corpora, gunzip, gunzip_sparse, own_corpus, own_corpus_dir};
pub use snapshot::{
    Digest, Entry, Kind, TreeSnapshot, assert_same_tree, content_digest, differences,
};
pub use tool::{
    Tool, debugfs, dumpe2fs_h, e2fsck_fn, e2fsck_is_silent, e2fsck_is_silent_with,
    e2fsck_is_silent_within, is_root, mke2fs, tool,
};

/// Reports the running test as skipped, with the reason, bypassing the test harness's capture of
/// output.
///
/// The line reads `skipped: TEST: WHY`; `cargo xtask test` collects these lines.
pub fn skipped(why: impl std::fmt::Display) {
    use std::io::Write;
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // If the harness has closed its error output, the line is lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// `skip!("no {tool} here")`: reports the running test as skipped and returns from it.
#[macro_export]
macro_rules! skip {
    ($($why:tt)*) => {{
        $crate::skipped(format_args!($($why)*));
        return;
    }};
}
