//! The paths that are counted: each a number of equal calls on a volume in memory or an image.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use extant::rooms::engine::{Credentials, Engine, RenameFlags, Volume, VolumeOptions};
use extant::rooms::ondisk::InodeNo;
use extant::rooms::reader::VolumeRead;
use extant::rooms::runtime::env::{Env, WallTime};
use extant::source::Source;
use extant::{Checker, FileDevice, FileSystem, Formatter, ImageBuilder, MemoryDevice};

/// Files of one directory.
const PER_DIRECTORY: usize = 500;
/// Bytes of a piece of a long file.
const PIECE: usize = 64 << 10;
const IDENTIFIER: &str = "11111111-2222-3333-4444-555555555556";
const TEXT: [u8; 100] = [b't'; 100];

/// A path with the number of its calls.
pub(crate) struct CallPath {
    pub(crate) name: &'static str,
    pub(crate) calls: usize,
    /// Makes files in a directory that the calls need, outside of what is counted.
    prepare: fn(&Path, usize),
    call: Call,
}

enum Call {
    /// On a volume with directories, with files in them or without: the directory, the file's
    /// name, another name, and how many calls came before.
    OnVolume { has_files: bool, call: fn(&Volume, InodeNo, &str, &str, usize) },
    /// All calls at once, with files in a directory.
    OnFiles(fn(&Path)),
}

pub(crate) const PATHS: [CallPath; 13] = [
    on_volume("create", 1000, false, |volume, dir, name, _, _| {
        Engine::create(volume, dir, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap();
    }),
    on_volume("link", 1000, true, |volume, dir, name, other, _| {
        Engine::link(volume, file(volume, dir, name), dir, other.as_bytes()).unwrap();
    }),
    on_volume("rename", 1000, true, |volume, dir, name, other, _| {
        let (name, other) = (name.as_bytes(), other.as_bytes());
        Engine::rename(volume, dir, name, dir, other, RenameFlags::empty()).unwrap();
    }),
    on_volume("unlink", 1000, true, |volume, dir, name, _, _| {
        Engine::unlink(volume, dir, name.as_bytes()).unwrap();
    }),
    on_volume("write", 1000, true, |volume, dir, name, _, _| {
        Engine::write(volume, file(volume, dir, name), 0, &TEXT).unwrap();
    }),
    on_volume("lookup", 1000, true, |volume, dir, name, _, _| {
        file(volume, dir, name);
    }),
    on_volume("read", 1000, true, |volume, dir, name, _, _| {
        let mut bytes = [0; 200];
        VolumeRead::read(volume, file(volume, dir, name), 0, &mut bytes).unwrap();
    }),
    on_volume("write and fsync", 200, true, |volume, dir, name, _, _| {
        let file = file(volume, dir, name);
        Engine::write(volume, file, 0, &TEXT).unwrap();
        Engine::fsync(volume, file).unwrap();
    }),
    on_volume("write 64 KiB", 200, true, |volume, _, _, _, at| {
        let dir = VolumeRead::lookup(volume, InodeNo::ROOT, b"d00000").unwrap().inode;
        let file = file(volume, dir, "file-000000");
        Engine::write(volume, file, (at * PIECE) as u64, &[b'p'; PIECE]).unwrap();
    }),
    on_files("metadata of a path", 1000, prepare_image, |place| {
        let fs = FileSystem::open_read_only(place.join("image")).unwrap();
        for at in 0..calls_of(place) {
            assert_eq!(fs.metadata(path_of(at)).unwrap().len(), TEXT.len() as u64);
        }
    }),
    on_files("list with metadata", 1000, prepare_image, |place| {
        let fs = FileSystem::open_read_only(place.join("image")).unwrap();
        for number in 0..calls_of(place).div_ceil(PER_DIRECTORY) {
            for entry in fs.read_dir(format!("/d{number:05}")).unwrap() {
                assert_eq!(entry.unwrap().metadata().unwrap().len(), TEXT.len() as u64);
            }
        }
    }),
    on_files("check of a file", 1000, prepare_image, |place| {
        let device = FileDevice::open(place.join("image")).unwrap();
        let report = Checker::new().force(true).threads(1).check(Arc::new(device)).unwrap();
        assert!(report.findings.is_empty());
    }),
    on_files("build of a file", 1000, prepare_archive, build),
];

const fn on_volume(
    name: &'static str,
    calls: usize,
    has_files: bool,
    call: fn(&Volume, InodeNo, &str, &str, usize),
) -> CallPath {
    CallPath { name, calls, prepare: |_, _| {}, call: Call::OnVolume { has_files, call } }
}

const fn on_files(
    name: &'static str,
    calls: usize,
    prepare: fn(&Path, usize),
    call: fn(&Path),
) -> CallPath {
    CallPath { name, calls, prepare, call: Call::OnFiles(call) }
}

/// Runs all paths, with a mark before the calls of each and one after them.
pub(crate) fn run(place: &Path) {
    for path in &PATHS {
        let place = place.join(path.name.replace(' ', "-"));
        std::fs::create_dir(&place).unwrap();
        (path.prepare)(&place, path.calls);
        match path.call {
            Call::OnFiles(call) => {
                mark();
                call(&place);
                mark();
            }
            Call::OnVolume { has_files, call } => on_new_volume(path.calls, has_files, call),
        }
    }
}

fn on_new_volume(calls: usize, has_files: bool, call: fn(&Volume, InodeNo, &str, &str, usize)) {
    let volume = volume();
    let make_dir = |number| {
        let name = format!("d{number:05}");
        let made = volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT);
        made.unwrap().number
    };
    let dirs: Vec<_> = (0..calls.div_ceil(PER_DIRECTORY)).map(make_dir).collect();
    let names: Vec<_> = (0..calls)
        .map(|at| (dirs[at / PER_DIRECTORY], name_of("file", at), name_of("other", at)))
        .collect();
    for (dir, name, _) in names.iter().filter(|_| has_files) {
        Engine::create(&volume, *dir, name.as_bytes(), 0o644, &Credentials::ROOT).unwrap();
    }
    volume.sync().unwrap();
    mark();
    for (at, (dir, name, other)) in names.iter().enumerate() {
        call(&volume, *dir, name, other, at);
    }
    volume.close().unwrap();
    mark();
}

/// Where valgrind begins another count.
#[inline(never)]
fn mark() {
    std::hint::black_box(());
}

/// A volume in memory, whose clock stands still and which commits only when asked to.
fn volume() -> Volume {
    let device = MemoryDevice::new(128 << 20);
    let formatter = Formatter::new().uuid(IDENTIFIER);
    formatter.extended(&format!("hash_seed={IDENTIFIER}")).format(&device).unwrap();
    let env = Env::threads_at(WallTime { seconds: 1_800_000_000, nanoseconds: 0 });
    let commit_interval = Duration::from_secs(1 << 20);
    let options = VolumeOptions { commit_interval, ..VolumeOptions::default() };
    Volume::open(Arc::new(device), &env, &options).unwrap()
}

fn file(volume: &Volume, dir: InodeNo, name: &str) -> InodeNo {
    VolumeRead::lookup(volume, dir, name.as_bytes()).unwrap().inode
}

fn name_of(kind: &str, at: usize) -> String {
    format!("{kind}-{:06}", at % PER_DIRECTORY)
}

fn path_of(at: usize) -> String {
    format!("/d{:05}/{}", at / PER_DIRECTORY, name_of("file", at))
}

/// How many files were prepared.
fn calls_of(place: &Path) -> usize {
    std::fs::read_to_string(place.join("calls")).unwrap().parse().unwrap()
}

/// An archive with a file for each call.
fn prepare_archive(place: &Path, calls: usize) {
    std::fs::write(place.join("calls"), calls.to_string()).unwrap();
    let mut archive = tar::Builder::new(File::create(place.join("archive")).unwrap());
    for at in 0..calls {
        let mut header = tar::Header::new_ustar();
        header.set_size(TEXT.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(1_700_000_000);
        archive.append_data(&mut header, &path_of(at)[1..], &TEXT[..]).unwrap();
    }
    archive.finish().unwrap();
}

/// An image of such an archive.
fn prepare_image(place: &Path, calls: usize) {
    prepare_archive(place, calls);
    build(place);
}

fn build(place: &Path) {
    let formatter = Formatter::new().uuid(IDENTIFIER);
    ImageBuilder::new(place.join("image"))
        .source(Source::Archive(place.join("archive")))
        .format(formatter.extended(&format!("hash_seed={IDENTIFIER}")))
        .source_date_epoch(1_700_000_000)
        .threads(1)
        .build()
        .unwrap();
}
