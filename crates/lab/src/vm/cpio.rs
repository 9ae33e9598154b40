//! Archives that the kernel unpacks into its first file system: cpio's `newc` form, as its
//! documentation (driver-api/early-userspace/buffer-format) describes it. Several may follow each
//! other in one file: later ones replace files.

use std::collections::BTreeSet;
use std::io::{self, Write};

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
/// Headers, names and contents begin at multiples of it.
const ALIGNMENT: u64 = 4;
/// Archives that follow each other begin at multiples of it.
const BLOCK: u64 = 512;
const LAST: &str = "TRAILER!!!";

/// Writes an archive.
pub(super) struct Writer<W> {
    out: W,
    at: u64,
    inode: u32,
    made: BTreeSet<String>,
}

impl<W: Write> Writer<W> {
    pub(super) fn new(out: W) -> Self {
        Self { out, at: 0, inode: 0, made: BTreeSet::new() }
    }

    /// A directory with those above it. Paths have no leading slash.
    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        for (at, _) in path.match_indices('/').chain([(path.len(), "")]) {
            if self.made.insert(path[..at].to_owned()) {
                self.entry(&path[..at], DIRECTORY, &[])?;
            }
        }
        Ok(())
    }

    /// An executable file. An existing one stays.
    pub(super) fn file(&mut self, path: &str, contents: &[u8]) -> io::Result<()> {
        self.below(path, PROGRAM, contents)
    }

    /// A symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) -> io::Result<()> {
        self.below(path, LINK, to.as_bytes())
    }

    /// Whether a path has been written.
    pub(super) fn has(&self, path: &str) -> bool {
        self.made.contains(path)
    }

    fn below(&mut self, path: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent)?;
        }
        match self.made.insert(path.to_owned()) {
            true => self.entry(path, mode, contents),
            false => Ok(()),
        }
    }

    /// Ends the archive; how long it is.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.entry(LAST, 0, &[])?;
        self.pad(BLOCK)?;
        self.out.flush()?;
        Ok(self.at)
    }

    fn entry(&mut self, path: &str, mode: u32, contents: &[u8]) -> io::Result<()> {
        let large = |_| io::Error::new(io::ErrorKind::FileTooLarge, format!("{path}: over 4 GiB"));
        let size = u32::try_from(contents.len()).map_err(large)?;
        let name_size = u32::try_from(path.len() + 1).map_err(large)?;
        self.inode += 1;
        let links = if mode == DIRECTORY { 2 } else { 1 };
        // Inode, mode, user, group, links, time, size, two device numbers twice, the name's size,
        // no checksum.
        let fields = [self.inode, mode, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        let mut header = "070701".to_owned();
        for field in fields {
            header.push_str(&format!("{field:08X}"));
        }
        self.bytes(header.as_bytes())?;
        self.bytes(path.as_bytes())?;
        self.bytes(&[0])?;
        self.pad(ALIGNMENT)?;
        self.bytes(contents)?;
        self.pad(ALIGNMENT)
    }

    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self, alignment: u64) -> io::Result<()> {
        let missing = self.at.next_multiple_of(alignment) - self.at;
        self.bytes(&vec![0; missing as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mode, name and contents of each entry, read as the kernel's documentation has it.
    fn entries(archive: &[u8]) -> Vec<(u32, String, Vec<u8>)> {
        let mut found = Vec::new();
        let mut at = 0;
        loop {
            assert_eq!(&archive[at..at + 6], b"070701");
            let field = |index: usize| {
                let start = at + 6 + 8 * index;
                let digits = std::str::from_utf8(&archive[start..start + 8]).expect("digits");
                u32::from_str_radix(digits, 16).expect("a number")
            };
            let (size, name_size) = (field(6) as usize, field(11) as usize);
            let name = String::from_utf8(archive[at + 110..at + 109 + name_size].to_vec());
            let name = name.expect("a name");
            assert_eq!(archive[at + 109 + name_size], 0);
            let contents = (at + 110 + name_size).next_multiple_of(4);
            if name == LAST {
                assert!(archive[contents..].iter().all(|byte| *byte == 0));
                return found;
            }
            found.push((field(1), name, archive[contents..contents + size].to_vec()));
            at = (contents + size).next_multiple_of(4);
        }
    }

    #[test]
    fn an_archive_has_directories_above_files_once() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.file("a/b/one", b"12345").expect("written");
        writer.link("a/two", "b/one").expect("written");
        writer.file("a/b/one", b"another").expect("left out");
        writer.directory("a/b").expect("there");
        assert!(writer.has("a/b/one") && !writer.has("a/three"));
        assert_eq!(writer.finish().expect("written"), 1024);
        assert_eq!(out.len(), 1024);
        let of =
            |mode: u32, name: &str, contents: &[u8]| (mode, name.to_owned(), contents.to_vec());
        assert_eq!(
            entries(&out),
            [
                of(0o040_755, "a", b""),
                of(0o040_755, "a/b", b""),
                of(0o100_755, "a/b/one", b"12345"),
                of(0o120_777, "a/two", b"b/one"),
            ]
        );
    }
}
