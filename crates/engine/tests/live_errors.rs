//! Corruption found on an open volume: returned with its location, recorded in the superblock,
//! handled as `errors=` says.

use extant_device::{Device, DeviceError, MemoryDevice, Request, RequestKind};
use extant_engine::{Credentials, RenameFlags, Volume, VolumeOptions};
use extant_ondisk::superblock::ErrorPolicy;
use extant_ondisk::{BlockNo, FileBlock, InodeNo, Location};
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, dumpe2fs_h, skip, tool};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn open(device: &Arc<dyn Device>, errors: Option<ErrorPolicy>) -> Volume {
    let options = VolumeOptions { errors, ..VolumeOptions::default() };
    Volume::open(device.clone(), &Env::stepped(1), &options).unwrap()
}

/// A volume with a directory whose only block has a wrong byte, and the directory's number.
fn broken() -> Result<(TempImage, Arc<dyn Device>, InodeNo), String> {
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"])?;
    let bytes = std::fs::read(image.path()).map_err(|error| error.to_string())?;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let volume = open(&device, None);
    let dir = volume.mkdir(InodeNo::ROOT, b"dir", 0o755, &Credentials::ROOT).unwrap().number;
    volume.create(dir, b"file", 0o644, &Credentials::ROOT).unwrap();
    let mut extents = volume.extents(dir).unwrap();
    let BlockNo(block) = extents.next().unwrap().unwrap().physical().unwrap();
    drop(extents);
    volume.close().unwrap();
    device.write_at(block * 1024 + 32, b"x").unwrap();
    Ok((image, device, dir))
}

fn header(
    image: &TempImage,
    device: &Arc<dyn Device>,
) -> std::collections::BTreeMap<String, String> {
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    dumpe2fs_h(&image.path()).unwrap()
}

#[test]
fn corruption_is_told_recorded_and_answered_as_the_options_say() {
    if tool("mke2fs").is_none() || tool("dumpe2fs").is_none() {
        skip!("no e2fsprogs here");
    }
    for policy in [None, Some(ErrorPolicy::RemountReadOnly)] {
        let (image, device, dir) = broken().unwrap();
        let volume = open(&device, policy);
        let met = volume.lookup(dir, b"file").unwrap_err();
        let Error::Format(extant_ondisk::FormatError::Corrupt { location, .. }) = &met else {
            panic!("{met}");
        };
        assert_eq!(*location, Location::DirBlock(dir, FileBlock(0)));
        let made = volume.create(InodeNo::ROOT, b"other", 0o644, &Credentials::ROOT);
        if policy.is_none() {
            made.unwrap();
            assert!(!volume.is_read_only());
        } else {
            assert!(matches!(made, Err(Error::ReadOnly)), "{made:?}");
            assert!(matches!(volume.write(dir, 0, b"x"), Err(Error::ReadOnly)));
            assert!(volume.is_read_only());
        }
        volume.lookup(InodeNo::ROOT, b"dir").unwrap();
        volume.close().unwrap();
        let header = header(&image, &device);
        assert_eq!(header["Filesystem state"], "clean with errors");
        assert_eq!(header["FS Error count"], "1");
        assert_eq!(header["First error function"], format!("directory {dir}, block 0"));
        assert_eq!(header["First error inode #"], dir.to_string());
        assert_eq!(header["Last error err"], "EFSBADCRC");
        assert_eq!(header["First error time"], header["Last error time"]);
    }
}

#[test]
fn a_name_that_the_link_count_does_not_know_of_stays() {
    let Some(debugfs) = tool("debugfs") else { skip!("no debugfs here") };
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]).unwrap();
    let path = image.path();
    for request in ["write /dev/null one", "ln one two", "write /dev/null other"] {
        let edited = debugfs.run(["-w", "-R", request, path.to_str().expect("UTF-8")]);
        assert!(edited.status.success(), "{request}");
    }
    let bytes = std::fs::read(&path).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let volume = open(&device, Some(ErrorPolicy::Continue));
    let file = volume.lookup(InodeNo::ROOT, b"one").unwrap().inode;
    volume.acquire(file).unwrap();
    volume.unlink(InodeNo::ROOT, b"one").unwrap();
    let is_corrupt = |answer: Result<(), Error>| matches!(answer, Err(Error::Format(_)));
    assert!(is_corrupt(volume.unlink(InodeNo::ROOT, b"two")));
    let flags = RenameFlags::default();
    assert!(is_corrupt(volume.rename(InodeNo::ROOT, b"two", InodeNo::ROOT, b"new", flags)));
    assert!(is_corrupt(volume.rename(InodeNo::ROOT, b"other", InodeNo::ROOT, b"two", flags)));
    assert!(volume.lookup(InodeNo::ROOT, b"other").is_ok());
    volume.release(file, 1).unwrap();
    volume.close().unwrap();
    assert_eq!(header(&image, &device)["First error inode #"], file.to_string());
}

#[test]
fn a_name_of_a_directory_inside_itself_is_told_and_stays() {
    let Some(debugfs) = tool("debugfs") else { skip!("no debugfs here") };
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]).unwrap();
    let path = image.path();
    for request in ["mkdir dir", "ln dir dir/itself"] {
        let edited = debugfs.run(["-w", "-R", request, path.to_str().expect("UTF-8")]);
        assert!(edited.status.success(), "{request}");
    }
    let bytes = std::fs::read(&path).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let volume = open(&device, Some(ErrorPolicy::Continue));
    let dir = volume.lookup(InodeNo::ROOT, b"dir").unwrap().inode;
    assert_eq!(volume.lookup(dir, b"itself").unwrap().inode, dir);
    let is_told = |answer: Result<(), Error>| {
        let Err(Error::Format(extant_ondisk::FormatError::Corrupt { location, .. })) = answer
        else {
            panic!("{answer:?}");
        };
        assert_eq!(location, Location::Inode(dir));
    };
    is_told(volume.unlink(dir, b"itself"));
    is_told(volume.rmdir(dir, b"itself"));
    is_told(volume.rename(dir, b"itself", InodeNo::ROOT, b"other", RenameFlags::default()));
    assert_eq!(volume.lookup(dir, b"itself").unwrap().inode, dir);
    volume.close().unwrap();
}

#[test]
fn a_name_in_a_block_of_two_directories_is_told_when_it_moved_with_the_other() {
    let Some(debugfs) = tool("debugfs") else { skip!("no debugfs here") };
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let image = TempImage::by_mke2fs(16 << 20, &options).unwrap();
    let path = image.path();
    let device = || -> Arc<dyn Device> {
        Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()))
    };
    let full = device();
    let volume = open(&full, None);
    let [one, _] = ["one", "other"].map(|name| {
        volume.mkdir(InodeNo::ROOT, name.as_bytes(), 0o755, &Credentials::ROOT).unwrap().number
    });
    let name = |number| format!("{number}{}", "n".repeat(110));
    for number in 0..8 {
        volume.create(one, name(number).as_bytes(), 0o644, &Credentials::ROOT).unwrap();
    }
    let BlockNo(block) = volume.extents(one).unwrap().next().unwrap().unwrap().physical().unwrap();
    volume.close().unwrap();
    let mut bytes = vec![0; full.size() as usize];
    full.read_at(0, &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    // The block of the only extent that it has.
    let request = format!("set_inode_field other block[5] {block}");
    let edited = debugfs.run(["-w", "-R", &request, path.to_str().expect("UTF-8")]);
    assert!(edited.status.success(), "{request}");

    let device = device();
    let volume = open(&device, Some(ErrorPolicy::Continue));
    let [one, other] =
        [&b"one"[..], b"other"].map(|name| volume.lookup(InodeNo::ROOT, name).unwrap().inode);
    // The name has no room in the block: what it holds moves to another block of the other
    // directory.
    let renamed =
        volume.rename(one, name(3).as_bytes(), other, &[b'x'; 200], RenameFlags::default());
    assert!(matches!(renamed, Err(Error::Format(_))), "{renamed:?}");
    assert!(volume.lookup(other, &[b'x'; 200]).is_err());
    volume.close().unwrap();
}

/// The number of the mark in the MMP block, and a way to set it.
fn mmp_sequence(device: &Arc<dyn Device>) -> (u64, u32) {
    let volume = Reader::open(device.clone()).unwrap();
    let block = volume.superblock().mmp_block;
    let at = volume.geometry().byte_of(block) + 4;
    let mut stored = [0; 4];
    device.read_at(at, &mut stored).unwrap();
    (at, u32::from_le_bytes(stored))
}

/// The number stored while the volume is not open, from the format.
const MMP_CLEAN: u32 = 0xff4d_4d50;

#[test]
fn a_mark_is_taken_kept_alive_and_given_back() {
    if tool("mke2fs").is_none() {
        skip!("no e2fsprogs here");
    }
    let image =
        TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-O", "mmp,^metadata_csum"]).unwrap();
    let bytes = std::fs::read(image.path()).unwrap();
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let env = Env::stepped(7);
    let options = VolumeOptions::default();
    let open = || Volume::open(device.clone(), &env, &options);
    assert_eq!(mmp_sequence(&device).1, MMP_CLEAN);
    let volume = open().unwrap();
    let (_, first) = mmp_sequence(&device);
    assert_ne!(first, MMP_CLEAN);
    env.advance(std::time::Duration::from_secs(20));
    assert_ne!(mmp_sequence(&device).1, first, "the number is counted up");

    // A second opener watches for a while, sees the number move, and writes nothing.
    let refused = open().unwrap_err();
    assert!(matches!(refused, Error::InUse(_)), "{refused}");
    volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap();
    volume.close().unwrap();
    assert_eq!(mmp_sequence(&device).1, MMP_CLEAN);

    // One that died is waited for and taken over.
    drop(open().unwrap());
    let volume = open().unwrap();

    // The mark of another host ends all writing.
    let (at, _) = mmp_sequence(&device);
    device.write_at(at, &77_u32.to_le_bytes()).unwrap();
    volume.create(InodeNo::ROOT, b"late", 0o644, &Credentials::ROOT).unwrap();
    env.advance(std::time::Duration::from_secs(20));
    assert!(volume.is_read_only());
    volume.close().unwrap_err();
    assert_eq!(mmp_sequence(&device).1, 77);
}

/// A device on which another opener writes its mark right after the first one that is written
/// through it.
#[derive(Debug)]
struct Rival {
    inner: MemoryDevice,
    /// Where the number stands.
    at: u64,
    has_come: AtomicBool,
}

impl Device for Rival {
    fn size(&self) -> u64 {
        self.inner.size()
    }

    fn submit(&self, batch: &mut [Request<'_>]) -> Result<(), DeviceError> {
        self.inner.submit(batch)?;
        let is_mark = |request: &Request<'_>| match &request.kind {
            RequestKind::Write { offset, .. } => *offset == self.at - 4,
            _ => false,
        };
        if batch.iter().any(is_mark) && !self.has_come.swap(true, Ordering::Relaxed) {
            self.inner.write_at(self.at, &77_u32.to_le_bytes())?;
        }
        Ok(())
    }

    fn next_data(&self, range: Range<u64>) -> Result<Option<Range<u64>>, DeviceError> {
        self.inner.next_data(range)
    }

    fn is_read_only(&self) -> bool {
        false
    }
}

fn with_mmp() -> Option<Vec<u8>> {
    tool("mke2fs")?;
    let args = ["-t", "ext4", "-O", "mmp,^metadata_csum"];
    Some(std::fs::read(TempImage::by_mke2fs(16 << 20, &args).unwrap().path()).unwrap())
}

/// Both find the volume free: the one whose mark does not stay has changed nothing.
#[test]
fn of_two_who_take_a_volume_at_once_one_gives_way() {
    let Some(mut before) = with_mmp() else { skip!("no e2fsprogs here") };
    let inner = MemoryDevice::from_bytes(&before);
    let (at, _) = mmp_sequence(&(Arc::new(inner.fork()) as Arc<dyn Device>));
    let rival = Arc::new(Rival { inner, at, has_come: AtomicBool::new(false) });
    let options = VolumeOptions::default();
    let opened = Volume::open(rival.clone(), &Env::stepped(7), &options);
    let refused = opened.unwrap_err();
    assert!(matches!(refused, Error::InUse(_)), "{refused}");
    let mut after = rival.inner.to_vec();
    let block = at as usize - 4..at as usize + 1020;
    assert_eq!(after[at as usize..][..4], 77_u32.to_le_bytes());
    before[block.clone()].fill(0);
    after[block].fill(0);
    assert!(before == after, "the volume was changed");
}

/// Neither delayed data nor a checkpoint reach the device when another host has it.
#[test]
fn nothing_is_written_once_the_mark_is_lost() {
    let Some(bytes) = with_mmp() else { skip!("no e2fsprogs here") };
    let memory = Arc::new(MemoryDevice::from_bytes(&bytes));
    let device: Arc<dyn Device> = memory.clone();
    let env = Env::stepped(7);
    let volume = Volume::open(device.clone(), &env, &VolumeOptions::default()).unwrap();
    let file = volume.create(InodeNo::ROOT, b"file", 0o644, &Credentials::ROOT).unwrap().number;
    volume.sync().unwrap();
    volume.write(file, 0, &[7; 100_000]).unwrap();
    let (at, _) = mmp_sequence(&device);
    device.write_at(at, &77_u32.to_le_bytes()).unwrap();
    env.advance(std::time::Duration::from_secs(10));
    assert!(volume.is_read_only());
    let before = memory.to_vec();
    env.advance(std::time::Duration::from_secs(120));
    volume.fsync(file).unwrap_err();
    volume.close().unwrap_err();
    assert!(memory.to_vec() == before, "the volume was changed");
}

/// The kernel opens such volumes too: what is broken of the list is left out, and the volume says
/// that it has errors.
#[test]
fn a_broken_list_of_orphans_bars_nobody() {
    let Some(debugfs) = tool("debugfs") else { skip!("no debugfs here") };
    let lists: [&[&str]; 5] = [
        // An inode that was never used, one past the end, one of the volume's own, the root; one
        // that leads back to itself.
        &["ssv last_orphan 400"],
        &["ssv last_orphan 4000000000"],
        &["ssv last_orphan 7"],
        &["ssv last_orphan 2"],
        &["sif <12> dtime 12", "ssv last_orphan 12"],
    ];
    for list in lists {
        let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"]).unwrap();
        let path = image.path();
        debugfs.run([
            "-w".as_ref(),
            "-R".as_ref(),
            "write /proc/version file".as_ref(),
            path.as_os_str(),
        ]);
        for command in list {
            debugfs.run(["-w".as_ref(), "-R".as_ref(), command.as_ref(), path.as_os_str()]);
        }
        assert_ne!(dumpe2fs_h(&path).unwrap().get("First orphan inode"), None, "{list:?}");
        for policy in [Some(ErrorPolicy::RemountReadOnly), None] {
            let device: Arc<dyn Device> =
                Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
            let volume = open(&device, policy);
            let made = volume.create(InodeNo::ROOT, b"other", 0o644, &Credentials::ROOT);
            assert_eq!(made.is_err(), policy.is_some(), "{list:?}: {made:?}");
            volume.close().unwrap();
            let header = header(&image, &device);
            assert_eq!(header["Filesystem state"], "clean with errors", "{list:?}");
            assert_eq!(header.contains_key("First orphan inode"), policy.is_some(), "{list:?}");
        }
        let fixed = tool("e2fsck").unwrap().run(["-fy".as_ref(), path.as_os_str()]);
        assert!(fixed.status.code().is_some_and(|code| code <= 1), "{list:?}: {fixed:?}");
    }
}
