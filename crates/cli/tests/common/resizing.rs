//! Calls of `extant resize`, and the sizes that it leaves.

use std::path::Path;
use std::process::Output;

use extant_testkit::dumpe2fs_h;

use super::{extant, text};

pub(crate) fn resize(image: &Path, words: &[&str]) -> Output {
    let words = words.iter().copied();
    extant(["resize", "-f"].into_iter().chain([image.to_str().unwrap()]).chain(words))
}

pub(crate) fn blocks(image: &Path) -> u64 {
    dumpe2fs_h(image).unwrap()["Block count"].parse().unwrap()
}

/// The number at the end of what `-P` prints.
pub(crate) fn minimum(image: &Path) -> u64 {
    let said = extant(["resize", "-P", image.to_str().unwrap()]);
    assert!(said.status.success(), "{said:?}");
    text(&said.stdout).trim().rsplit(' ').next().unwrap().parse().unwrap()
}
