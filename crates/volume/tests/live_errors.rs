//! Corruption met on a live volume: told with its place, recorded in the superblock, answered as `errors=` says.

use extant_device::env::Env;
use extant_device::{Device, MemoryDevice};
use extant_ondisk::superblock::ErrorPolicy;
use extant_ondisk::{BlockNo, FileBlock, InodeNo, Place};
use extant_testkit::{TempImage, dumpe2fs_h, skip, tool};
use extant_volume::{Creator, Error, LiveOptions, OpenOptions, Volume};
use std::sync::Arc;

fn open(device: &Arc<dyn Device>, errors: Option<ErrorPolicy>) -> Volume {
    let options = LiveOptions { errors, ..LiveOptions::default() };
    OpenOptions::default().open_live(device.clone(), &Env::stepped(1), &options).unwrap()
}

/// A volume with a directory whose only block has a wrong byte, and the directory's number.
fn broken() -> Result<(TempImage, Arc<dyn Device>, InodeNo), String> {
    let image = TempImage::by_mke2fs(16 << 20, &["-t", "ext4", "-b", "1024"])?;
    let bytes = std::fs::read(image.path()).map_err(|error| error.to_string())?;
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&bytes));
    let volume = open(&device, None);
    let dir = volume.mkdir(InodeNo::ROOT, b"dir", 0o755, &Creator::ROOT).unwrap().number;
    volume.create(dir, b"file", 0o644, &Creator::ROOT).unwrap();
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
        let Error::Format(extant_ondisk::FormatError::Corrupt { place, .. }) = &met else {
            panic!("{met}");
        };
        assert_eq!(*place, Place::DirBlock(dir, FileBlock(0)));
        let made = volume.create(InodeNo::ROOT, b"other", 0o644, &Creator::ROOT);
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
