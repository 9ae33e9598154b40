//! Volumes mounted by `extant mount`: written through it, judged by e2fsck and the kernel's ext4;
//! ended in every way.

mod mounting;

use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use extant_testkit::{LoopMount, Scratch, TreeSnapshot, assert_same_tree, e2fsck_fn, skip, tree};
use mounting::{Mount, can_mount, extant, image};

/// Files written through the mount are there after it, for e2fsck and for the kernel.
#[test]
fn a_tree_written_through_the_mount_is_the_same_afterwards() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for kind in ["ext4", "ext3", "ext2"] {
        let scratch = Scratch::new();
        // Targets of symbolic links fit into one block.
        let image = image(&scratch, &["-t", kind, "-b", "4096"], "96M");
        let source = scratch.join("source");
        tree::grow(&source, 11, &tree::Options::default()).expect("a tree");
        let expected = TreeSnapshot::of_dir(&source).expect("readable");
        let mount = Mount::new(&scratch, &image, &[]);
        // Within the mount, so that what it makes of the root is not compared.
        let status = std::process::Command::new("timeout")
            .args(["60", "cp", "-a", "--sparse=always"])
            .arg(&source)
            .arg(mount.path())
            .status();
        assert!(status.expect("cp runs").success(), "{kind}: cp");
        let live = TreeSnapshot::of_dir(&mount.path().join("source")).expect("readable");
        assert_same_tree(&expected, &live);
        mount.unmount();
        e2fsck_fn(&image).expect(kind);
        let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
        let found = TreeSnapshot::of_dir(&kernel.path().join("source")).expect("readable");
        assert_same_tree(&expected, &found);
    }
}

#[test]
fn files_are_changed_as_the_calls_say() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let at = |name: &str| mount.path().join(name);
    fs::write(at("file"), b"one").expect("write");
    fs::hard_link(at("file"), at("link")).expect("link");
    assert_eq!(fs::metadata(at("file")).expect("stat").nlink(), 2);
    fs::rename(at("link"), at("moved")).expect("rename");
    symlink("file", at("symbolic")).expect("symlink");
    assert_eq!(fs::read(at("symbolic")).expect("read"), b"one");
    let open = fs::OpenOptions::new().read(true).write(true).open(at("file")).expect("open");
    fs::remove_file(at("file")).expect("unlink");
    fs::remove_file(at("moved")).expect("unlink");
    // Open without a name: still there.
    open.write_all_at(b"two", 3).expect("write");
    let mut bytes = [0; 6];
    open.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"onetwo");
    drop(open);
    // A hole that the kernel's cache has filled is no hole.
    let ahead = fs::File::create(at("ahead")).expect("create");
    ahead.write_all_at(b"data", 1 << 20).expect("write");
    let found = rustix::fs::seek(&ahead, rustix::fs::SeekFrom::Data(1 << 20));
    assert_eq!(found, Ok(1 << 20));
    drop(ahead);
    fs::create_dir(at("dir")).expect("mkdir");
    fs::set_permissions(at("dir"), fs::Permissions::from_mode(0o750)).expect("chmod");
    assert_eq!(fs::metadata(at("dir")).expect("stat").mode() & 0o7777, 0o750);
    fs::write(at("dir/inner"), vec![7; 100_000]).expect("write");
    let error = fs::remove_dir(at("dir")).expect_err("not empty");
    assert_eq!(error.kind(), std::io::ErrorKind::DirectoryNotEmpty);
    let cut = fs::OpenOptions::new().write(true).open(at("dir/inner")).expect("open");
    cut.set_len(10).expect("truncate");
    cut.set_len(20).expect("truncate");
    drop(cut);
    let expected = [vec![7; 10], vec![0; 10]].concat();
    assert_eq!(fs::read(at("dir/inner")).expect("read"), expected);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// Fsynced data survive the end of the server at any moment; the next mount recovers.
#[test]
fn a_server_that_is_killed_loses_nothing_that_was_fsynced() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    for number in 0..20 {
        let mut file = fs::File::create(mount.path().join(format!("f{number}"))).expect("create");
        file.write_all(&vec![number; 5000]).expect("write");
        file.sync_all().expect("fsync");
    }
    mount.kill_server();
    let again = Mount::new(&scratch, &image, &[]);
    for number in 0..20 {
        let found = fs::read(again.path().join(format!("f{number}"))).expect("there");
        assert_eq!(found, vec![number; 5000], "f{number}");
    }
    again.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// Several threads get the kernel's writes, in any order, while earlier ones are on their way to
/// the device.
#[test]
fn data_that_the_kernel_writes_in_any_order_are_all_there() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "256M");
    let content: Vec<u8> =
        (0..6u32 << 20).flat_map(|word| word.wrapping_add(1).to_le_bytes()).collect();
    let mount = Mount::new(&scratch, &image, &[]);
    for number in 0..6 {
        let mut file = fs::File::create(mount.path().join(format!("f{number}"))).expect("create");
        file.write_all(&content).expect("write");
        file.sync_all().expect("fsync");
    }
    // The kernel's cache ends with the mount.
    mount.unmount();
    let again = Mount::new(&scratch, &image, &[]);
    for number in 0..6 {
        let found = fs::read(again.path().join(format!("f{number}"))).expect("there");
        let differs = found.iter().zip(&content).position(|(found, written)| found != written);
        assert_eq!((found.len(), differs), (content.len(), None), "f{number}");
    }
    again.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn a_read_only_mount_writes_nothing_not_even_to_recover() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let mut file = fs::File::create(mount.path().join("kept")).expect("create");
    file.write_all(b"kept").expect("write");
    file.sync_all().expect("fsync");
    drop(file);
    mount.kill_server();
    let before = fs::read(&image).expect("readable");
    let reader = Mount::new(&scratch, &image, &["-o", "ro"]);
    assert_eq!(fs::read(reader.path().join("kept")).expect("replayed in memory"), b"kept");
    let error = fs::write(reader.path().join("new"), b"").expect_err("read-only");
    assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    reader.unmount();
    assert!(before == fs::read(&image).expect("readable"), "the image was written");
}

#[test]
fn an_image_is_mounted_once_only() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let other = scratch.join("other");
    fs::create_dir(&other).expect("mkdir");
    let (code, said) = extant(&["mount"], &[&image, &other]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("in use"), "{said}");
    mount.unmount();
}

/// A signal ends the server well, even while files are open.
#[test]
fn a_signal_ends_the_mount_and_the_volume_is_clean() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    for keeps_open in [false, true] {
        let scratch = Scratch::new();
        let image = image(&scratch, &["-t", "ext4"], "64M");
        let mount = Mount::new(&scratch, &image, &[]);
        fs::write(mount.path().join("file"), b"text").expect("write");
        let open = keeps_open.then(|| fs::File::open(mount.path().join("file")).expect("open"));
        mount.terminate_server();
        drop(open);
        e2fsck_fn(&image).expect("clean");
        assert_eq!(extant(&["cat"], &[Path::new(&format!("{}:/file", image.display()))]).1, "text");
    }
}

#[test]
fn what_cannot_be_mounted_is_said_before_the_command_ends() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let (image, point) = (image(&scratch, &["-t", "ext4"], "64M"), scratch.join("point"));
    fs::create_dir(&point).expect("mkdir");
    let refused = |options: &[&str], image: &Path| {
        let (code, said) = extant(&[&["mount"], options].concat(), &[image, &point]);
        assert_ne!(code, 0, "{options:?}: {said}");
        said
    };
    assert!(refused(&["-o", "fast"], &image).contains("unknown mount option fast"));
    let said = refused(&["-o", "errors=panic"], &image);
    assert!(said.contains("errors=panic is not supported: a server cannot panic"), "{said}");
    assert!(refused(&["-o", "data=journal,delalloc"], &image).contains("mutually exclusive"));
    assert!(
        refused(&["-o", "data=ordered,journal_async_commit"], &image)
            .contains("mutually exclusive")
    );
    fs::write(scratch.join("empty"), vec![0; 1 << 20]).expect("write");
    let said = refused(&[], &scratch.join("empty"));
    assert!(said.contains("empty"), "{said}");
    assert!(
        extant::rooms::mount::mount_at(&point).expect("the table").is_none(),
        "a mount was left"
    );
}
