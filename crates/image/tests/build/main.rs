//! `build` against the oracles: e2fsck finds nothing, and the kernel mounts what the source holds.

mod features;
mod fit;
mod output;
mod same_bytes;
mod shapes;

use std::ffi::OsString;
use std::path::Path;

use extant_image::build::{BuildError, BuildOptions, Report, Size, build};
use extant_image::mkfs::Options;
use extant_image::source::{ReadOptions, Source, Tree, read_sources};
use extant_testkit::{LoopMount, TreeSnapshot, e2fsck_fn, is_root};

/// The options of a build as a command line has them.
pub(crate) fn options(output: &Path, words: &str) -> BuildOptions {
    let words = words.split_whitespace().map(OsString::from);
    let device = [OsString::from("--"), output.as_os_str().to_owned()];
    BuildOptions {
        output: output.to_owned(),
        format: Options::parse(words.chain(device)).expect("options that parse"),
        epoch: None,
        ..BuildOptions::default()
    }
}

/// The tree of a directory.
pub(crate) fn tree_of(source: &Path) -> Tree {
    let sources = [Source::Directory(source.to_owned())];
    read_sources(&sources, &ReadOptions::default()).expect("a readable source")
}

/// Builds an image of a tree.
pub(crate) fn built(tree: &Tree, output: &Path, words: &str) -> Result<Report, BuildError> {
    build(&options(output, words), tree, &|_| ())
}

/// Builds a volume of `size` bytes.
pub(crate) fn built_with_size(
    tree: &Tree,
    output: &Path,
    words: &str,
    size: u64,
) -> Result<Report, BuildError> {
    let options = BuildOptions { size: Size::Given(size), ..options(output, words) };
    build(&options, tree, &|_| ())
}

/// e2fsck, where it is installed.
pub(crate) fn assert_clean(image: &Path, what: &str) {
    if extant_testkit::tool("e2fsck").is_some() {
        e2fsck_fn(image).unwrap_or_else(|said| panic!("{what}: {said}"));
    }
}

/// The files of an image as the kernel shows them, without lost+found; `None` if mounting is not
/// possible here.
pub(crate) fn mounted(image: &Path, what: &str) -> Option<TreeSnapshot> {
    if !is_root() {
        return None;
    }
    let mount = LoopMount::new(image, "ro,noload").unwrap_or_else(|said| panic!("{what}: {said}"));
    let found = TreeSnapshot::of_dir(mount.path()).expect("a mounted tree can be read");
    Some(found.without("lost+found"))
}
