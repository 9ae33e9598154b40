//! Verity and encrypted files on an open volume: changes of them are refused by name, other calls
//! succeed.

use extant_device::{Device, MemoryDevice};
use extant_engine::{Credentials, Volume, VolumeOptions};
use extant_ondisk::InodeNo;
use extant_reader::{Error, Reader, VolumeRead};
use extant_runtime::env::Env;
use extant_testkit::{TempImage, skip, tool};
use std::process::Command;
use std::sync::Arc;

/// Flags as debugfs sets them: mapped by extents, and encrypted or with a hash tree.
const ENCRYPTED: &str = "0x80800";
const VERITY: &str = "0x180000";

fn open(device: &Arc<dyn Device>) -> Volume {
    let env = Env::stepped(1);
    Volume::open(device.clone(), &env, &VolumeOptions::default()).unwrap()
}

fn in_memory(image: &TempImage) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()))
}

#[test]
fn sealed_files_are_not_changed_and_others_are() {
    let Some(debugfs) = tool("debugfs") else { skip!("no e2fsprogs here") };
    let options = ["-t", "ext4", "-b", "4096", "-O", "encrypt,verity,stable_inodes"];
    let image = TempImage::by_mke2fs(16 << 20, &options).unwrap();
    let device = in_memory(&image);
    let volume = open(&device);
    for name in [&b"secret"[..], b"hashed", b"plain"] {
        let file = volume.create(InodeNo::ROOT, name, 0o644, &Credentials::ROOT).unwrap().number;
        volume.write(file, 0, b"as it was").unwrap();
    }
    volume.mkdir(InodeNo::ROOT, b"closed", 0o755, &Credentials::ROOT).unwrap();
    volume.close().unwrap();
    let mut bytes = vec![0; device.size() as usize];
    device.read_at(0, &mut bytes).unwrap();
    std::fs::write(image.path(), bytes).unwrap();
    for (name, flags) in [("secret", ENCRYPTED), ("closed", ENCRYPTED), ("hashed", VERITY)] {
        let change = format!("set_inode_field /{name} flags {flags}");
        let mut command = Command::new(debugfs.path());
        let done = command.args(["-w", "-R", &change]).arg(image.path()).output().unwrap();
        assert!(done.status.success());
    }

    let device = in_memory(&image);
    let volume = open(&device);
    let number = |name: &[u8]| volume.lookup(InodeNo::ROOT, name).unwrap().inode;
    let (secret, closed, hashed) = (number(b"secret"), number(b"closed"), number(b"hashed"));
    let is_encrypted = |outcome: Result<(), Error>| matches!(outcome, Err(Error::Encrypted(_)));
    let is_barred = |outcome: Result<(), Error>| matches!(outcome, Err(Error::NotPermitted(_)));
    assert!(is_encrypted(volume.write(secret, 0, b"x").map(drop)));
    assert!(is_encrypted(volume.truncate(secret, 0)));
    assert!(is_encrypted(volume.create(closed, b"new", 0o644, &Credentials::ROOT).map(drop)));
    assert!(is_encrypted(volume.mkdir(closed, b"new", 0o755, &Credentials::ROOT).map(drop)));
    assert!(is_encrypted(volume.link(number(b"plain"), closed, b"plain").map(drop)));
    assert!(is_barred(volume.write(hashed, 0, b"x").map(drop)));
    assert!(is_barred(volume.truncate(hashed, 0)));

    // Hash trees protect the contents: they are read as they were. Attributes and names are not
    // part of them.
    let mut read = [0; 9];
    assert_eq!(volume.read(hashed, 0, &mut read).unwrap(), 9);
    assert_eq!(&read, b"as it was");
    volume.link(hashed, InodeNo::ROOT, b"second").unwrap();
    volume.unlink(InodeNo::ROOT, b"secret").unwrap();
    volume.write(number(b"plain"), 0, b"changed").unwrap();
    volume.close().unwrap();
    let volume = Reader::open(device).unwrap();
    let found = volume.lookup(InodeNo::ROOT, b"second").unwrap();
    assert_eq!(found.inode, hashed);
    assert!(volume.lookup(InodeNo::ROOT, b"secret").is_err());
}
