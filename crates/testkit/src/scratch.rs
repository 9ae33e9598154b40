//! Scratch directories that are removed with their owner, and the corpora of images.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::ops::Deref;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Length in bytes of runs of zeros that become holes when an image is unpacked.
const HOLE: usize = 4096;

/// A directory under TMPDIR, removed with its content when dropped.
#[derive(Debug)]
pub struct Scratch {
    dir: tempfile::TempDir,
}

impl Scratch {
    /// Creates an empty directory. Panics on failure: no test can run then.
    #[expect(clippy::new_without_default, reason = "making a directory is an effect")]
    pub fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("extant-").tempdir();
        Self { dir: dir.expect("TMPDIR takes a new directory") }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        self.dir.path()
    }
}

/// An image file in its own scratch directory, removed when dropped.
#[derive(Debug)]
pub struct TempImage {
    scratch: Scratch,
}

impl TempImage {
    /// A sparse file of `bytes` bytes.
    pub fn of_size(bytes: u64) -> io::Result<Self> {
        let image = Self { scratch: Scratch::new() };
        File::create(image.path())?.set_len(bytes)?;
        Ok(image)
    }

    /// Unpacks a gzipped image, with its zero blocks as holes.
    pub fn gunzipped(packed: &Path) -> io::Result<Self> {
        let image = Self { scratch: Scratch::new() };
        gunzip_sparse(packed, &image.path())?;
        Ok(image)
    }

    /// `mke2fs ARGS` on a sparse file of `bytes` bytes; the error is the message of mke2fs.
    pub fn by_mke2fs(bytes: u64, args: &[&str]) -> Result<Self, String> {
        let image = Self::of_size(bytes).map_err(|error| error.to_string())?;
        let path = image.path();
        let path = path.to_str().ok_or("scratch paths are UTF-8")?;
        crate::mke2fs(["-q", "-F"].iter().chain(args).chain([&path]))?;
        Ok(image)
    }

    /// Its path.
    pub fn path(&self) -> PathBuf {
        self.scratch.join("disk.img")
    }
}

/// The project's directory.
pub(crate) fn workspace() -> &'static Path {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent();
    crates.and_then(Path::parent).expect("this crate lies two directories down")
}

/// The corpora of images of other programs: EXTANT_CORPORA, or `../shared/corpora` next to the
/// workspace.
pub fn corpora() -> Option<PathBuf> {
    let named = std::env::var_os("EXTANT_CORPORA").map(PathBuf::from);
    let shared = || Some(workspace().parent()?.join("shared/corpora"));
    named.or_else(shared).filter(|path| path.is_dir())
}

/// The directory of `cargo xtask corpora` for the project's own corpus.
pub fn own_corpus_dir() -> PathBuf {
    workspace().join("target/corpus")
}

/// The packed images of the project's own corpus, sorted by name; empty if it was not created.
pub fn own_corpus() -> Vec<PathBuf> {
    let found = std::fs::read_dir(own_corpus_dir()).into_iter().flatten().filter_map(Result::ok);
    let is_image = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "gz");
    let mut images: Vec<_> = found.map(|entry| entry.path()).filter(is_image).collect();
    images.sort();
    images
}

/// A gzipped file, unpacked in memory.
pub fn gunzip(packed: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let reader = BufReader::new(File::open(packed)?);
    flate2::bufread::MultiGzDecoder::new(reader).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A gzipped file unpacked to `image`; blocks of zeros become holes.
pub fn gunzip_sparse(packed: &Path, image: &Path) -> io::Result<()> {
    let reader = BufReader::with_capacity(1 << 16, File::open(packed)?);
    let mut reader = flate2::bufread::MultiGzDecoder::new(reader);
    let out = File::create(image)?;
    let (mut block, mut at) = (vec![0; HOLE], 0);
    loop {
        let filled = fill(&mut reader, &mut block)?;
        if block[..filled].iter().any(|byte| *byte != 0) {
            out.write_all_at(&block[..filled], at)?;
        }
        at += filled as u64;
        if filled < HOLE {
            return out.set_len(at);
        }
    }
}

/// Reads until `block` is full or the input ends.
pub(crate) fn fill(reader: &mut impl Read, block: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < block.len() {
        match reader.read(&mut block[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn unpacking_keeps_bytes_and_makes_holes() {
        let scratch = Scratch::new();
        let mut content = vec![0; 1 << 20];
        content.extend(b"the end");
        let packed = scratch.join("packed.gz");
        let mut encoder =
            flate2::write::GzEncoder::new(File::create(&packed).unwrap(), Default::default());
        encoder.write_all(&content).unwrap();
        encoder.finish().unwrap();

        let image = TempImage::gunzipped(&packed).unwrap();
        assert_eq!(gunzip(&packed).unwrap(), content);
        assert_eq!(std::fs::read(image.path()).unwrap(), content);
        assert!(std::fs::metadata(image.path()).unwrap().blocks() * 512 < 1 << 18);
    }

    #[test]
    fn scratch_goes_away_with_its_owner() {
        let scratch = Scratch::new();
        let path = scratch.path().to_owned();
        std::fs::write(path.join("file"), "x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
