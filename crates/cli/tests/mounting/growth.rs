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

/// The first byte and the length of a partition, by sfdisk.
fn partition(disk: &Path, number: u32) -> (u64, u64) {
    let sfdisk = tool("sfdisk").expect("looked for by the test");
    let name = disk.to_str().expect("a plain path");
    let checked = sfdisk.text(["--verify", name]).expect("sfdisk runs");
    assert!(checked.contains("No errors detected"), "{checked}");
    let dump = sfdisk.text(["-d", name]).expect("sfdisk runs");
    let start = format!("{name}{number} ");
    let line = dump.lines().find(|line| line.starts_with(&start)).expect("the partition");
    let field = |label: &str| -> u64 {
        let rest = line.split_once(label).expect("a field").1.trim_start_matches([' ', '=']);
        rest.split(',').next().expect("a number").trim().parse().expect("a number")
    };
    (field("start") * 512, field("size") * 512)
}

fn set_length(image: &Path, length: u64) {
    fs::File::options().write(true).open(image).expect("open").set_len(length).expect("set_len");
}

/// A disk with a GPT: a partition of 16 MiB, and one of 64 MiB with a volume of 32 MiB.
fn partitioned(scratch: &Scratch) -> Result<std::path::PathBuf, String> {
    let sfdisk = tool("sfdisk").ok_or("no sfdisk here")?;
    let disk = scratch.join("disk.img");
    let script = scratch.join("script");
    fs::write(&script, "label: gpt\nsize=16MiB\nsize=64MiB\n").expect("write");
    fs::File::create(&disk).expect("create").set_len(100 * MIB).expect("set_len");
    let script = fs::File::open(&script).expect("open");
    let made = sfdisk.command().arg("-q").arg(&disk).stdin(script).status();
    assert!(made.expect("sfdisk runs").success());
    for (number, size) in [(1, "16M"), (2, "32M")] {
        let part = part_of(&disk, number);
        let words = ["mkfs", "-q", "-F", "-t", "ext4", "-b", "4096"];
        let (code, said) = extant(&words, &[&part, Path::new(size)]);
        assert_eq!(code, 0, "{said}");
    }
    Ok(disk)
}

fn part_of(disk: &Path, number: u32) -> std::path::PathBuf {
    format!("{}#p{number}", disk.display()).into()
}

/// A volume in a partition grows to the end of the partition, and this one with the file if that is
/// asked for.
#[test]
fn a_mounted_volume_grows_with_its_partition() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let disk = match partitioned(&scratch) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let part = part_of(&disk, 2);
    let mount = Mount::new(&scratch, &part, &[]);
    let point = mount.path();
    let file = point.join("file");
    fs::write(&file, content(1, 3)).expect("write");
    let resize = |words: &[&str], paths: &[&Path], code: i32, what: &str| {
        let (found, said) = extant(&[&["resize"], words].concat(), paths);
        assert!(found == code && said.contains(what), "{words:?}: {found}: {said}");
    };
    let named = format!(
        "Filesystem at {} is mounted on {}; on-line resizing required\n\
         The filesystem on {} is now 12288 (4k) blocks long.",
        disk.display(),
        point.display(),
        disk.display()
    );
    resize(&[], &[point, Path::new("48M")], 0, &named);
    resize(&[], &[point], 0, "is now 16384 (4k) blocks long");
    resize(&[], &[point, Path::new("80M")], 1, "partition 2 has 67108864 bytes");
    resize(&[], &[&part, Path::new("80M")], 1, "name the mount point");
    let before = partition(&disk, 2);
    resize(&["--grow-partition"], &[point, Path::new("9000T")], 1, "are too many");
    resize(&["--grow-partition"], &[point, Path::new("16M")], 1, "shrinking not supported");
    assert_eq!(partition(&disk, 2), before);
    // To the end of the file, where the backup of the table has 33 sectors.
    resize(&["--grow-partition"], &[point], 0, "The partition reaches to the end of");
    let (start, length) = partition(&disk, 2);
    assert_eq!((start, start + length), (before.0, 100 * MIB - 33 * 512));
    resize(&["--grow-partition"], &[point, Path::new("200M")], 0, "is now 51200 (4k) blocks");
    assert!(partition(&disk, 2).1 >= 200 * MIB);
    // Another program changes the table.
    set_length(&disk, 400 * MIB);
    let sfdisk = tool("sfdisk").expect("it was there");
    let script = scratch.join("longer");
    fs::write(&script, ",+\n").expect("write");
    let script = fs::File::open(&script).expect("open");
    let words = ["-q", "--no-reread", "--force", "-N", "2"];
    let moved = sfdisk.command().args(words).arg(&disk).stdin(script).status();
    assert!(moved.expect("sfdisk runs").success());
    let length = partition(&disk, 2).1;
    assert!(length > 300 * MIB, "{length}");
    resize(&[], &[point], 0, &format!("is now {} (4k) blocks long", length / 4096));
    fs::write(point.join("large"), vec![9; 250 * MIB as usize]).expect("the new part is used");
    mount.unmount();
    let (code, said) = extant(&["fsck", "-fn"], &[&part]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = extant(&["fsck", "-fn"], &[&part_of(&disk, 1)]);
    assert_eq!(code, 0, "{said}");
    let offset = scratch.join("volume.img");
    let mut source = fs::File::open(&disk).expect("open");
    let mut target = fs::File::create(&offset).expect("create");
    std::io::Seek::seek(&mut source, std::io::SeekFrom::Start(start)).expect("seek");
    let mut source = std::io::Read::take(source, length);
    std::io::copy(&mut source, &mut target).expect("copy");
    e2fsck_fn(&offset).expect("healthy");
    let kernel = LoopMount::new(&offset, "ro").expect("the kernel mounts it");
    assert!(fs::read(kernel.path().join("file")).expect("the file") == content(1, 3));
    assert_eq!(length_of_large(kernel.path()), 250 * MIB);
    kernel.unmount().expect("unmounted");

    // A partition that another one follows stays as it is.
    let before = partition(&disk, 1);
    let mount = Mount::new(&scratch, &part_of(&disk, 1), &[]);
    resize(&["--grow-partition"], &[mount.path()], 1, "partition 2 lies after it");
    assert_eq!(partition(&disk, 1), before);
    mount.unmount();
}

/// A program of the library does the same.
#[test]
fn a_program_grows_a_partition_of_a_mount_by_the_library() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let disk = match partitioned(&scratch) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let point = scratch.join("point");
    fs::create_dir(&point).expect("a mount point");
    let mount = |number| {
        let mounter = extant::Mounter::new(part_of(&disk, number), &point);
        mounter.program(env!("CARGO_BIN_EXE_extant")).mount().expect("it is mounted")
    };
    let held = mount(2);
    let (start, before) = partition(&disk, 2);
    held.grow(before + MIB).expect_err("it ends with the partition");
    // The file has room; then it gets longer.
    let most = held.extend_partition(0).expect("it reaches to the end of the file");
    assert_eq!((start + most, partition(&disk, 2)), (100 * MIB - 33 * 512, (start, most)));
    let longer = held.extend_partition(150 * MIB).expect("the file gets longer");
    assert!(longer >= 150 * MIB && partition(&disk, 2) == (start, longer), "{longer}");
    assert_eq!(held.grow(150 * MIB).expect("it grows"), 150 * MIB);
    held.unmount().expect("it is unmounted");
    let (code, said) = extant(&["fsck", "-fn"], &[&part_of(&disk, 2)]);
    assert_eq!(code, 0, "{said}");

    let first = mount(1);
    let refused = first.extend_partition(0).expect_err("another one lies after it").to_string();
    assert!(refused.contains("partition 2 lies after it"), "{refused}");
    first.unmount().expect("it is unmounted");
}

fn length_of_large(root: &Path) -> u64 {
    length(&root.join("large"))
}

/// A part that is named by its first byte alone ends with its partition, or with the file.
#[test]
fn a_mounted_volume_at_an_offset_does_not_grow_past_its_partition() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let disk = match partitioned(&scratch) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let (start, length) = partition(&disk, 2);
    let part = |start: u64| std::path::PathBuf::from(format!("{}?offset={start}", disk.display()));
    let mount = Mount::new(&scratch, &part(start), &[]);
    let ends = format!("partition 2 ends after {length} bytes there");
    for size in [&[][..], &[Path::new("70M")]] {
        let (code, said) = extant(&["resize"], &[&[mount.path()], size].concat());
        assert!(code == 1 && said.contains(&ends), "{said}");
    }
    let (code, said) = extant(&["resize"], &[mount.path(), Path::new("64M")]);
    assert_eq!(code, 0, "{said}");
    let (code, said) = extant(&["resize", "--grow-partition"], &[mount.path()]);
    assert!(code == 1 && said.contains("not a partition"), "{said}");
    mount.unmount();
    // Nor does it while it is not mounted.
    let (code, said) = extant(&["resize", "-f"], &[&part(start), Path::new("70M")]);
    assert!(code == 1 && said.contains(&ends), "{said}");
    assert_eq!(partition(&disk, 2), (start, length));

    // No table: the file gets longer.
    let plain = scratch.join("plain.img");
    fs::File::create(&plain).expect("create").set_len(40 * MIB).expect("set_len");
    let name = std::path::PathBuf::from(format!("{}?offset=1M", plain.display()));
    let (code, said) = extant(&["mkfs", "-q", "-F", "-t", "ext4", "-b", "4096"], &[&name]);
    assert_eq!(code, 0, "{said}");
    let mount = Mount::new(&scratch, &name, &[]);
    let (code, said) = extant(&["resize"], &[mount.path(), Path::new("80M")]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(self::length(&plain), 81 * MIB);
    mount.unmount();
    let (code, said) = extant(&["fsck", "-fn"], &[&name]);
    assert_eq!(code, 0, "{said}");
}

/// Layers grow to the length that they have; a cipher without a length of its own gets longer with
/// its file.
#[test]
fn a_mounted_volume_on_layers_grows_to_the_end_of_its_layer() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let scratch = Scratch::new();
    let file = |name: &str| {
        let path = scratch.join(name);
        fs::File::create(&path).expect("create").set_len(64 * MIB).expect("set_len");
        path
    };
    let key = scratch.join("key");
    fs::write(&key, [7; 64]).expect("write");
    let (below, upper, plain) = (file("below"), scratch.join("upper"), file("plain"));
    let crypt =
        format!("crypt:{}?cipher=aes-xts-plain64&key-file={}", plain.display(), key.display());
    let overlay = format!("overlay:{}?upper={}", below.display(), upper.display());
    let mut names = vec![(overlay, false), (crypt, true)];
    if let Some(qemu) = tool("qemu-img") {
        let path = scratch.join("disk.qcow2");
        qemu.text(["create", "-q", "-f", "qcow2", path.to_str().expect("plain"), "64M"])
            .expect("qemu-img runs");
        names.push((format!("qcow2:{}", path.display()), false));
    }
    for (name, gets_longer) in names {
        let image = Path::new(&name);
        // The overlay's file does not hold a volume yet.
        let made = if name.starts_with("overlay:") { &*below } else { image };
        let words = ["mkfs", "-q", "-F", "-t", "ext4", "-b", "4096"];
        let (code, said) = extant(&words, &[made, Path::new("32M")]);
        assert_eq!(code, 0, "{name}: {said}");
        set_length(&below, 64 * MIB);
        let mount = Mount::new(&scratch, image, &[]);
        let (code, said) = extant(&["resize"], &[mount.path()]);
        assert!(code == 0 && said.contains("is now 16384 (4k) blocks"), "{name}: {said}");
        let (code, said) = extant(&["resize"], &[mount.path(), Path::new("80M")]);
        match gets_longer {
            true => assert!(code == 0 && said.contains("is now 20480 (4k)"), "{name}: {said}"),
            false => assert!(
                code == 1 && said.contains("it has 67108864 bytes, and this kind of device"),
                "{name}: {said}"
            ),
        }
        fs::write(mount.path().join("file"), vec![3; 40 * MIB as usize]).expect("write");
        mount.unmount();
        let (code, said) = extant(&["fsck", "-fn"], &[image]);
        assert_eq!(code, 0, "{name}: {said}");
    }
    assert_eq!(length(&plain), 80 * MIB);
}
