//! Archives written here, block by block, so that they can be wrong where a test wants it.

use std::fs;
use std::path::PathBuf;

use extant_image::source::Source;
use extant_testkit::Scratch;

/// An archive that grows.
#[derive(Clone, Default)]
pub(crate) struct Written(pub(crate) Vec<u8>);

impl Written {
    pub(crate) fn file(self, name: &str, contents: &[u8]) -> Self {
        self.entry(name, b'0', "", contents)
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.entry(name, b'5', "", b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(name, b'2', target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(name, b'1', target, b"")
    }

    /// The records of a pax header for the next entry.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut data = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let length = (1..).find(|digits| (rest + digits).to_string().len() == *digits);
            let record = format!("{} {key}=", rest + length.unwrap());
            data.extend_from_slice(record.as_bytes());
            data.extend_from_slice(value);
            data.push(b'\n');
        }
        self.entry("pax", b'x', "", &data)
    }

    /// Mode 0644, uid 7, gid 8, time 1,000,000,000.
    pub(crate) fn entry(self, name: &str, flag: u8, link: &str, contents: &[u8]) -> Self {
        self.changed_entry(name, flag, link, contents, |_| {})
    }

    /// As [`Self::entry`], with a last change to the block before its checksum is made.
    pub(crate) fn changed_entry(
        mut self,
        name: &str,
        flag: u8,
        link: &str,
        contents: &[u8],
        change: impl FnOnce(&mut [u8]),
    ) -> Self {
        let mut block = [0; 512];
        block[..name.len()].copy_from_slice(name.as_bytes());
        block[100..108].copy_from_slice(b"0000644\0");
        block[108..116].copy_from_slice(b"0000007\0");
        block[116..124].copy_from_slice(b"0000010\0");
        block[124..136].copy_from_slice(format!("{:011o}\0", contents.len()).as_bytes());
        block[136..148].copy_from_slice(b"07346545000\0");
        block[156] = flag;
        block[157..157 + link.len()].copy_from_slice(link.as_bytes());
        block[257..265].copy_from_slice(b"ustar\x0000");
        change(&mut block);
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        self.0.extend_from_slice(&block);
        self.0.extend_from_slice(contents);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// The archive with its end.
    pub(crate) fn ended(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }

    /// Writes the archive with its end.
    pub(crate) fn source(self, scratch: &Scratch, name: &str) -> Source {
        file_of(scratch, name, &self.ended())
    }
}

pub(crate) fn file_of(scratch: &Scratch, name: &str, bytes: &[u8]) -> Source {
    let path: PathBuf = scratch.path().join(name);
    fs::write(&path, bytes).unwrap();
    Source::Archive(path)
}
