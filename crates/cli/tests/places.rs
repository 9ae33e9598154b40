//! Images wherever they lie: changes in a file of their own (`overlay:`), disk images of virtual
//! machines, network block devices; judged by e2fsck, qemu and the kernel.

mod common;

#[path = "places/far.rs"]
mod far;
#[path = "places/kills.rs"]
mod kills;
#[path = "places/nbd.rs"]
mod nbd;
#[path = "places/overlay.rs"]
mod overlay;
#[cfg(feature = "remote")]
#[path = "places/remote.rs"]
mod remote;
#[cfg(feature = "remote")]
#[path = "places/s3s.rs"]
mod s3s;
#[cfg(feature = "remote")]
#[path = "places/stores.rs"]
mod stores;
#[cfg(feature = "vm")]
#[path = "places/vm.rs"]
mod vm;

use std::path::Path;
use std::process::{Command, Output};

use common::{EXTANT, extant};

/// Runs a command that must succeed; `@` in its words is the image.
fn done(words: &str, image: &str) -> String {
    let output = run(words, image);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words} ({image}): {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(words: &str, image: &str) -> Output {
    extant(words.split(' ').map(|word| word.replace('@', image)))
}

/// Runs a command that must fail, and gives what it said.
fn refused(words: &str, image: &str) -> String {
    let output = run(words, image);
    assert!(!output.status.success(), "{words} ({image})");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a command of the shell in a directory.
fn shell(script: &str, dir: &Path) {
    let bin = Path::new(EXTANT).parent().expect("the binary is in a directory");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let words = ["-ec", script];
    let output = Command::new("bash").args(words).current_dir(dir).env("PATH", path).output();
    let output = output.expect("bash runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {said}");
}
