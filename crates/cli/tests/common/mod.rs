//! Images with every kind of file, made by mke2fs and by the kernel.
#![allow(dead_code, reason = "each test crate uses what it needs")]

pub(crate) mod program;
pub(crate) mod resizing;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use extant_testkit::{LoopMount, Scratch, TempImage, is_root, tree};

pub(crate) const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// A tree and an image that holds it.
pub(crate) struct Fixture {
    pub(crate) scratch: Scratch,
    /// The tree.
    pub(crate) source: PathBuf,
    pub(crate) image: TempImage,
}

impl Fixture {
    /// `mke2fs -d`, with a seed of its own for each feature set. The error says why it is not made.
    pub(crate) fn by_mke2fs(args: &[&str], seed: u64, block: usize) -> Result<Self, String> {
        let (scratch, source) = grown(seed, block);
        let mut words = args.to_vec();
        words.extend(["-d", source.to_str().ok_or("scratch paths are UTF-8")?]);
        let image = TempImage::by_mke2fs(256 << 20, &words)?;
        Ok(Self { scratch, source, image })
    }

    /// Copied onto a kernel mount of a new volume.
    pub(crate) fn by_kernel(args: &[&str], seed: u64, block: usize) -> Result<Self, String> {
        if !is_root() {
            return Err("a loop mount needs root".to_owned());
        }
        let (scratch, source) = grown(seed, block);
        let image = TempImage::by_mke2fs(256 << 20, args)?;
        let mount = LoopMount::new(&image.path(), "")?;
        let mut from = source.clone().into_os_string();
        from.push("/.");
        let copied = Command::new("cp").arg("-a").arg(from).arg(mount.path()).status();
        assert!(copied.is_ok_and(|status| status.success()));
        mount.unmount()?;
        Ok(Self { scratch, source, image })
    }

    /// The tree as the kernel shows it on a read-only mount: mke2fs drops what it cannot keep.
    pub(crate) fn mounted_snapshot(&self) -> Result<extant_testkit::TreeSnapshot, String> {
        let mount = LoopMount::new(&self.image.path(), "ro,noload")?;
        Ok(snapshot(mount.path()))
    }

    pub(crate) fn inside(&self, path: &str) -> String {
        format!("{}:{path}", self.image.path().display())
    }
}

fn grown(seed: u64, block: usize) -> (Scratch, PathBuf) {
    let scratch = Scratch::new();
    let source = scratch.join("source");
    let options = tree::Options { block, ..tree::Options::default() };
    tree::grow(&source, seed, &options).expect("scratch space takes a tree");
    (scratch, source)
}

pub(crate) fn extant<S: AsRef<std::ffi::OsStr>>(words: impl IntoIterator<Item = S>) -> Output {
    Command::new(EXTANT).args(words).output().expect("the binary was built")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Ends well and says nothing on standard error.
pub(crate) fn quiet(output: &Output) {
    let said = text(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{:?} {said}", output.status);
}

/// The tree of a directory, for comparisons.
pub(crate) fn snapshot(path: &Path) -> extant_testkit::TreeSnapshot {
    extant_testkit::TreeSnapshot::of_dir(path).expect("the tree can be read").without("lost+found")
}
