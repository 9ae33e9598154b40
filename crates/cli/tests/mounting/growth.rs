//! Mounted volumes that grow while programs use them.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use extant_testkit::{LoopDevice, LoopMount, Scratch, dumpe2fs_h, e2fsck_fn, skip, tool};

use super::{Mount, can_mount, extant, image, until};

const MIB: u64 = 1 << 20;

/// `EXT4_IOC_RESIZE_FS` with a number of blocks; prints the errno, or 0.
const RESIZE: &str = "import fcntl, os, struct, sys
try:
    fcntl.ioctl(os.open(sys.argv[2], os.O_RDONLY), 0x40086610, struct.pack('Q', int(sys.argv[1])))
    print(0)
except OSError as error:
    print(error.errno)";

fn length(image: &Path) -> u64 {
    fs::metadata(image).expect("the image").len()
}

/// Blocks of the volume as the mount shows them, in bytes.
fn shown(at: &Path) -> u64 {
    let stat = rustix::fs::statvfs(at).expect("statvfs");
    stat.f_blocks * stat.f_frsize
}

/// The bytes of a file after a number of rounds.
fn content(file: u8, rounds: u8) -> Vec<u8> {
    (0..=rounds).flat_map(|round| vec![file ^ round; 100_000]).collect()
}

#[test]
fn a_mounted_volume_grows_under_programs_that_write() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(python) = tool("python3") else { skip!("no python3 here") };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "32M");
    // The sandbox is on.
    let mount = Mount::new(&scratch, &image, &[]);
    let point = mount.path();
    let held = fs::File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(point.join("unlinked"))
        .expect("create");
    held.write_all_at(b"of an unlinked file", 0).expect("write");
    fs::remove_file(point.join("unlinked")).expect("unlink");
    let is_over = AtomicBool::new(false);
    let rounds: Vec<u8> = thread::scope(|scope| {
        let writers: Vec<_> = (0..3_u8)
            .map(|file| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let target = fs::File::create(point.join(file.to_string())).expect("create");
                    let mut round = 0_u8;
                    loop {
                        let at = u64::from(round) * 100_000;
                        target.write_all_at(&[file ^ round; 100_000], at).expect("write");
                        if is_over.load(Ordering::Relaxed) || round == 80 {
                            return round;
                        }
                        target.sync_data().expect("fdatasync");
                        round += 1;
                    }
                })
            })
            .collect();
        let before = shown(point);
        let (code, said) = extant(&["resize"], &[point, Path::new("100M")]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("is now 25600 (4k) blocks long"), "{said}");
        assert!(shown(point) > before + 60 * MIB, "{} after {before}", shown(point));
        assert_eq!(length(&image), 100 * MIB);
        // By the kernel's own command, with a number of blocks.
        let grown = python.command().args(["-c", RESIZE, "40960"]).arg(point).output();
        assert_eq!(grown.expect("python runs").stdout, b"0\n");
        assert_eq!(length(&image), 160 * MIB);
        // The file was made longer by its user; the volume is named by its image.
        fs::File::options()
            .write(true)
            .open(&image)
            .expect("open")
            .set_len(200 * MIB)
            .expect("len");
        let (code, said) = extant(&["resize"], &[&image]);
        assert_eq!(code, 0, "{said}");
        assert!(said.contains("on-line resizing required"), "{said}");
        assert!(said.contains("is now 51200 (4k) blocks long"), "{said}");
        let (code, said) = extant(&["resize"], &[point]);
        assert!(code == 0 && said.contains("Nothing to do!"), "{said}");
        is_over.store(true, Ordering::Relaxed);
        writers.into_iter().map(|writer| writer.join().expect("no panic")).collect()
    });
    fs::write(point.join("large"), vec![9; 120 * MIB as usize]).expect("the new part is used");
    let mut text = [0; 19];
    held.read_exact_at(&mut text, 0).expect("read");
    assert_eq!(&text, b"of an unlinked file");
    drop(held);
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
    assert_eq!(dumpe2fs_h(&image).expect("dumpe2fs")["Block count"], "51200");
    let kernel = LoopMount::new(&image, "ro").expect("the kernel mounts it");
    for (file, rounds) in (0..).zip(rounds) {
        let found = fs::read(kernel.path().join(file.to_string())).expect("the file");
        assert!(found == content(file, rounds), "file {file} after {rounds} rounds");
    }
    assert_eq!(length(&kernel.path().join("large")), 120 * MIB);
}

#[test]
fn what_a_mounted_volume_does_not_do_is_refused_by_name() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let (Some(python), Some(setpriv)) = (tool("python3"), tool("setpriv")) else {
        skip!("no python3 or setpriv here")
    };
    let scratch = Scratch::new();
    let open = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o755);
    fs::set_permissions(&*scratch, open).expect("chmod");
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "32M");
    let mount = Mount::new(&scratch, &image, &[]);
    let point = mount.path();
    let refused = |words: &[&str], what: &str| {
        let (code, said) = extant(words, &[point]);
        assert!(code == 1 && said.contains(what), "{words:?}: {code}: {said}");
    };
    refused(&["resize", "-M"], "-M: the volume is mounted");
    refused(&["resize", "-P"], "-P: the volume is mounted");
    refused(&["resize", "-b"], "-b: the volume is mounted");
    refused(&["resize", "-z", "undo"], "-z: the volume is mounted");
    refused(&["resize", "-J", "size=8"], "-J: the volume is mounted");
    let (code, said) = extant(&["resize"], &[point, Path::new("16M")]);
    assert!(code == 1 && said.contains("on-line shrinking not supported"), "{said}");
    let (code, said) = extant(&["resize"], &[&scratch, Path::new("64M")]);
    assert!(code == 1 && said.contains("not an extant mount point"), "{said}");
    // Past what the volume can number: the largest size is told.
    let (code, said) = extant(&["resize"], &[point, Path::new("9000T")]);
    assert!(code == 1 && said.contains("are too many: at most"), "{said}");
    // The kernel's own command makes nothing smaller either.
    let smaller = python.command().args(["-c", RESIZE, "100"]).arg(point).output();
    assert_eq!(smaller.expect("python runs").stdout, b"22\n");
    // Where others reach it.
    let program = scratch.join("extant");
    fs::copy(env!("CARGO_BIN_EXE_extant"), &program).expect("copy");
    let mut command: Command = setpriv.command();
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(program);
    let output = command.arg("resize").arg(point).arg("64M").output().expect("setpriv runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Operation not permitted"), "{said}");
    assert_eq!(length(&image), 32 * MIB);
    mount.unmount();

    let mount = Mount::new(&scratch, &image, &["-o", "ro"]);
    let (code, said) = extant(&["resize"], &[mount.path(), Path::new("64M")]);
    assert!(code == 1 && said.contains("Read-only file system"), "{said}");
    let grown = python.command().args(["-c", RESIZE, "10000"]).arg(mount.path()).output();
    assert_eq!(grown.expect("python runs").stdout, b"30\n");
    mount.unmount();
    assert_eq!(length(&image), 32 * MIB);
    e2fsck_fn(&image).expect("healthy");
}

/// A block device has a size of its own, and a volume that is frozen waits.
#[test]
fn growth_ends_at_the_device_and_waits_while_the_volume_is_frozen() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4", "-b", "4096"], "32M");
    fs::File::options().write(true).open(&image).expect("open").set_len(64 * MIB).expect("len");
    let device = match LoopDevice::new(&image) {
        Ok(device) => device,
        Err(why) => skip!("{why}"),
    };
    let mount = Mount::new(&scratch, device.path(), &[]);
    let point = mount.path();
    let (code, said) = extant(&["resize"], &[point, Path::new("80M")]);
    assert!(code == 1 && said.contains("the device cannot grow: "), "{said}");
    assert!(shown(point) < 32 * MIB);
    assert_eq!(extant(&["freeze"], &[point]), (0, String::new()));
    thread::scope(|scope| {
        let grown = scope.spawn(|| extant(&["resize"], &[point, Path::new("48M")]));
        // The request has arrived, or not: it is carried out after the thaw in any case.
        thread::yield_now();
        assert!(shown(point) < 32 * MIB, "it has grown while it was frozen");
        assert_eq!(extant(&["thaw"], &[point]), (0, String::new()));
        let (code, said) = grown.join().expect("no panic");
        assert!(code == 0 && said.contains("is now 12288 (4k) blocks long"), "{said}");
    });
    let (code, said) = extant(&["resize"], &[point]);
    assert!(code == 0 && said.contains("is now 16384 (4k) blocks long"), "{said}");
    fs::write(point.join("file"), vec![1; 40 * MIB as usize]).expect("write");
    mount.unmount();
    let path = device.path().to_owned();
    until("the device is free", || e2fsck_fn(&path).is_ok());
}
