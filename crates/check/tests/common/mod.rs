//! Shared code of the checker's tests: a walk over a volume that depends on the format alone, and
//! runs of the checker.
#![allow(dead_code, reason = "each test file uses its part")]

use extant_check::{AutoPolicy, CheckOptions, PassReport, Recorder, Store, pass0};
use extant_device::{Device, FileDevice, FileDeviceOptions};
use extant_ondisk::dirent::DirFormat;
use extant_ondisk::extent::{ExtentNode, RawExtent, RawExtentIndex};
use extant_ondisk::indirect::{IndirectMap, pointers};
use extant_ondisk::inline_data::InlineDir;
use extant_ondisk::inode::{FileType, Inode, InodeFlags, xattr_area};
use extant_ondisk::xattr::{self, ValueRef};
use extant_ondisk::{BlockNo, FileBlock, InodeNo};
use extant_runtime::env::Env;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

pub(crate) fn open(image: &Path, write: bool) -> Arc<dyn Device> {
    let device: FileDevice =
        FileDeviceOptions::new().write(write).open(image).expect("the image opens");
    Arc::new(device)
}

/// To take a volume with multiple-mount protection takes time: here on a virtual clock.
pub(crate) fn open_options() -> pass0::CheckOpenOptions {
    let env = Env::stepped_at(1, Env::threads().now());
    pass0::CheckOpenOptions { env, ..pass0::CheckOpenOptions::default() }
}

pub(crate) fn options() -> CheckOptions {
    CheckOptions { threads: 2, ..CheckOptions::default() }
}

/// Scans an image and changes nothing.
pub(crate) fn scan(image: &Path) -> Result<PassReport, extant_check::CheckError> {
    extant_check::scan(&Store::open(open(image, false))?, &options())
}

/// Repairs an image with all answers yes.
pub(crate) fn repair(image: &Path) -> Result<PassReport, extant_check::CheckError> {
    repair_with(image, &options())
}

/// The same with other options.
pub(crate) fn repair_with(
    image: &Path,
    options: &CheckOptions,
) -> Result<PassReport, extant_check::CheckError> {
    let mut store = Store::open(open(image, true))?;
    extant_check::repair(&mut store, options, &Recorder::new(&AutoPolicy::Yes))
}

/// All of fsck: what comes before the passes, the passes, the closing.
pub(crate) fn fsck(
    image: &Path,
    options: &CheckOptions,
    answers: AutoPolicy,
) -> Result<PassReport, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let device = open(image, answers != AutoPolicy::No);
    let recorder = Recorder::new(&answers);
    let mut ready =
        pass0::open(device, &open_options(), &recorder).map_err(|error| text(&error))?;
    let before = recorder.findings();
    let mut report =
        extant_check::repair(&mut ready.store, options, &recorder).map_err(|error| text(&error))?;
    let is_left =
        |it: &extant_check::HandledFinding| it.finding.code.counts_when_left() && !it.repaired;
    report.errors_left |= before.iter().any(is_left);
    let closing =
        if report.errors_left { pass0::Closing::ErrorsLeft } else { pass0::Closing::Clean };
    let passed = recorder.findings().len();
    ready.close(closing, &recorder).map_err(|error| text(&error))?;
    report.findings.extend(before);
    report.findings.extend(recorder.findings().split_off(passed));
    Ok(report)
}

/// The findings of a report, one a line.
pub(crate) fn findings(report: &PassReport) -> String {
    report.findings.iter().fold(String::new(), |mut text, outcome| {
        let mark = if outcome.repaired { '*' } else { ' ' };
        let _ = writeln!(text, "  {mark} {:?}: {}", outcome.finding.code, outcome.finding);
        text
    })
}

/// The tree of a volume in the corpus's form: path, type, size, hash of the content; sorted.
pub(crate) struct Walker<'a> {
    store: &'a Store,
    lines: BTreeMap<Vec<u8>, String>,
}

/// Files beyond this are not hashed.
pub(crate) const BIG: u64 = 64 << 20;

impl<'a> Walker<'a> {
    pub(crate) fn tree(store: &'a Store) -> String {
        let mut walker = Self { store, lines: BTreeMap::new() };
        walker.visit(InodeNo::ROOT, b"/".to_vec(), 0);
        walker.lines.into_values().fold(String::new(), |text, line| text + &line + "\n")
    }

    fn inode(&self, ino: InodeNo) -> Option<(Inode, Vec<u8>)> {
        let record = self.store.read_inode(ino).ok()??;
        let inode = Inode::decode(&record, ino, self.store.geometry()).ok()?;
        Some((inode, record))
    }

    fn visit(&mut self, ino: InodeNo, path: Vec<u8>, depth: usize) {
        let shown = escaped(&path);
        let Some((inode, record)) = self.inode(ino) else {
            self.lines.insert(shown.clone().into_bytes(), format!("{shown}\t?\t-\t-"));
            return;
        };
        let (kind, size, hash) = match inode.file_type() {
            Some(FileType::Regular) => {
                let hash =
                    if inode.size > BIG { "big".into() } else { self.hash(ino, &inode, &record) };
                ('f', inode.size.to_string(), hash)
            }
            Some(FileType::Directory) => ('d', "-".into(), "-".into()),
            Some(FileType::Symlink) => {
                ('l', inode.size.to_string(), self.hash(ino, &inode, &record))
            }
            Some(FileType::CharDevice | FileType::BlockDevice) => {
                let number = inode.device().expect("a device");
                let kind = if inode.file_type() == Some(FileType::CharDevice) { 'c' } else { 'b' };
                (kind, format!("{},{}", number.major, number.minor), "-".into())
            }
            Some(FileType::Fifo) => ('p', "-".into(), "-".into()),
            Some(FileType::Socket) => ('s', "-".into(), "-".into()),
            None => ('?', "-".into(), "-".into()),
        };
        self.lines.insert(shown.clone().into_bytes(), format!("{shown}\t{kind}\t{size}\t{hash}"));
        if kind != 'd' || depth > 100 {
            return;
        }
        for (name, child) in self.names(ino, &inode, &record) {
            let mut below = path.clone();
            if below != b"/" {
                below.push(b'/');
            }
            // A slash inside a name is escaped like other bytes.
            let mut name = name;
            for byte in &mut name {
                if *byte == b'/' {
                    *byte = 0x01;
                }
            }
            below.extend(name);
            self.visit(child, below, depth + 1);
        }
    }

    pub(crate) fn names(
        &self,
        ino: InodeNo,
        inode: &Inode,
        record: &[u8],
    ) -> Vec<(Vec<u8>, InodeNo)> {
        let geometry = self.store.geometry();
        let mut format = DirFormat::new(geometry, ino, inode.generation);
        if inode.flags.contains(InodeFlags::ENCRYPT) && inode.flags.contains(InodeFlags::CASEFOLD) {
            format = format.with_stored_hashes();
        }
        let mut names = Vec::new();
        if inode.is_inline() {
            let value = self.inline_rest(ino, record);
            let Ok(dir) = InlineDir::decode(&format, &inode.i_block, &value, inode.size) else {
                return names;
            };
            for entry in dir.entries().flatten() {
                names.extend(entry.inode.map(|child| (entry.name.to_vec(), child)));
            }
            return names;
        }
        for (at, block) in self.blocks(inode) {
            let Ok(bytes) = self.store.read(block) else { continue };
            for entry in format.entries(&bytes, FileBlock(at)).flatten() {
                if !entry.is_dot() {
                    names.extend(entry.inode.map(|child| (entry.name.to_vec(), child)));
                }
            }
        }
        names
    }

    fn inline_rest(&self, ino: InodeNo, record: &[u8]) -> Vec<u8> {
        let geometry = self.store.geometry();
        xattr_area(record, ino, geometry)
            .and_then(|space| {
                xattr::decode_inode(space, ino, geometry).map(|entries| {
                    entries.iter().find(|entry| entry.name.is_inline_data()).map_or(
                        Vec::new(),
                        |entry| match entry.value {
                            ValueRef::Stored(value) => value.to_vec(),
                            ValueRef::EaInode(_) => Vec::new(),
                        },
                    )
                })
            })
            .unwrap_or_default()
    }

    fn hash(&self, ino: InodeNo, inode: &Inode, record: &[u8]) -> String {
        let size = inode.size as usize;
        let geometry = self.store.geometry();
        let mut content;
        if inode.is_inline() {
            content = [&inode.i_block[..], &self.inline_rest(ino, record)].concat();
        } else if inode.file_type() == Some(FileType::Symlink) && inode.is_fast_symlink(geometry) {
            content = inode.i_block.to_vec();
        } else {
            let block_len = geometry.block_len();
            content = vec![0; size.next_multiple_of(block_len)];
            for (at, block) in self.written_blocks(inode) {
                let start = at as usize * block_len;
                if start < content.len()
                    && let Ok(bytes) = self.store.read(block)
                {
                    content[start..start + block_len].copy_from_slice(&bytes);
                }
            }
        }
        content.resize(size, 0);
        sha(&content)
    }

    fn blocks(&self, inode: &Inode) -> Vec<(u64, BlockNo)> {
        self.map(inode).into_iter().map(|(at, block, _)| (at, block)).collect()
    }

    fn written_blocks(&self, inode: &Inode) -> Vec<(u64, BlockNo)> {
        self.map(inode)
            .into_iter()
            .filter(|(.., unwritten)| !unwritten)
            .map(|(at, block, _)| (at, block))
            .collect()
    }

    fn map(&self, inode: &Inode) -> Vec<(u64, BlockNo, bool)> {
        let mut found = Vec::new();
        if inode.is_extent_mapped() {
            self.extents(&inode.i_block, &mut found);
        } else {
            let map = IndirectMap::new(self.store.geometry().block_size);
            for (slot, block) in pointers(&inode.i_block).enumerate() {
                self.indirect(
                    block,
                    slot.saturating_sub(11),
                    map.slot_start(slot).0,
                    &map,
                    &mut found,
                );
            }
        }
        found
    }

    fn extents(&self, bytes: &[u8], found: &mut Vec<(u64, BlockNo, bool)>) {
        match ExtentNode::parse(bytes) {
            Some(ExtentNode::Leaf(extents)) => {
                for extent in extents.iter().map(RawExtent::decode) {
                    for at in 0..u64::from(extent.len) {
                        let block = BlockNo(extent.start.0 + at);
                        found.push((extent.block.0 + at, block, extent.is_unwritten));
                    }
                }
            }
            Some(ExtentNode::Index(indexes, _)) => {
                for index in indexes.iter().map(RawExtentIndex::decode) {
                    if let Ok(bytes) = self.store.read(index.leaf) {
                        self.extents(&bytes, found);
                    }
                }
            }
            None => {}
        }
    }

    fn indirect(
        &self,
        block: BlockNo,
        levels: usize,
        first: u64,
        map: &IndirectMap,
        found: &mut Vec<(u64, BlockNo, bool)>,
    ) {
        if block.0 == 0 || !self.store.geometry().contains(block, 1) {
            return;
        }
        if levels == 0 {
            found.push((first, block, false));
            return;
        }
        let step = if levels == 1 { 1 } else { map.covered_by(levels - 1) };
        if let Ok(bytes) = self.store.read(block) {
            for (at, below) in pointers(&bytes).enumerate() {
                self.indirect(below, levels - 1, first + at as u64 * step, map, found);
            }
        }
    }
}

fn escaped(path: &[u8]) -> String {
    path.iter().fold(String::new(), |mut text, &byte| {
        if byte == 0x01 {
            text.push_str("\\x2f");
        } else if byte <= 0x20 || byte >= 0x7f || byte == b'\\' {
            let _ = write!(text, "\\x{byte:02x}");
        } else {
            text.push(char::from(byte));
        }
        text
    })
}

/// sha256 of a tree.
pub(crate) fn tree_sha(tree: &str) -> String {
    sha(tree.as_bytes())
}

pub(crate) fn sha(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
