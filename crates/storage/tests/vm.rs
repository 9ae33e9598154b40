//! Disk images of virtual machines, made and converted by qemu-img: the same bytes and the same
//! holes; files that an image names; damaged images.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::time::Duration;

use crc_fast::{CrcAlgorithm, checksum};
use extant_device::{Device, FileDeviceOptions, data_runs};
use extant_runtime::Random;
use extant_runtime::env::Env;
use extant_storage::{Access, Opened, Schemes, UrlError, open};
use extant_testkit::{Scratch, Tool, skip, tool};

const SIZE: usize = 3 << 20;

fn opened(name: impl AsRef<OsStr>) -> Result<Opened, UrlError> {
    open(name, &Schemes::default(), Access::ReadOnly, &FileDeviceOptions::new())
}

fn refused(name: impl AsRef<OsStr>) -> String {
    opened(name).expect_err("refused").to_string()
}

/// Bytes with runs of zeroes and of other bytes.
fn disk(seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0; SIZE];
    for _ in 0..40 {
        let start = random.below(SIZE / 512) * 512;
        let length = (1 + random.below(200)) * 512;
        let end = SIZE.min(start + length);
        let is_noise = random.below(2) == 0;
        for byte in &mut bytes[start..end] {
            *byte = if is_noise { random.below(256) as u8 } else { 0x5a };
        }
    }
    bytes
}

/// Compares the device with what it is to be: all bytes, parts of them, and holes.
fn assert_holds(name: &str, expected: &[u8]) {
    let device = opened(name).unwrap_or_else(|error| panic!("{name}: {error}")).device;
    assert!(device.is_read_only());
    assert_eq!(device.size(), expected.len() as u64, "{name}");
    let mut found = vec![0xff; expected.len()];
    device.read_at(0, &mut found).expect("read");
    assert!(found == expected, "{name}: bytes differ");
    let mut random = Random::new(7);
    for _ in 0..50 {
        let start = random.below(expected.len());
        let end = expected.len().min(start + random.below(100_000));
        let mut part = vec![0xff; end - start];
        device.read_at(start as u64, &mut part).expect("read");
        assert!(part == expected[start..end], "{name}: {start}..{end}");
    }
    let mut told = vec![0; expected.len()];
    for run in data_runs(&device, 0..device.size()) {
        let run = run.expect("told");
        let run = run.start as usize..run.end as usize;
        told[run.clone()].copy_from_slice(&expected[run]);
    }
    assert!(told == expected, "{name}: a hole that is told has data");
}

struct Images {
    scratch: Scratch,
    qemu: Tool,
}

impl Images {
    fn new() -> Option<Self> {
        Some(Self { scratch: Scratch::new(), qemu: tool("qemu-img")? })
    }

    fn path(&self, name: &str) -> String {
        self.scratch.join(name).display().to_string()
    }

    /// Runs qemu-img; `@NAME` is a file of the scratch directory.
    fn qemu(&self, words: &str) -> String {
        let words = words.split(' ').map(|word| match word.split_once('@') {
            Some((before, name)) => format!("{before}{}", self.path(name)),
            None => word.to_owned(),
        });
        self.qemu.text(words).unwrap_or_else(|error| panic!("{error}"))
    }
}

#[test]
fn qcow2_images_of_qemu_read_as_it_converts_them() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(1)).unwrap();
    for options in [
        "",
        "-o cluster_size=512",
        "-o cluster_size=4k,refcount_bits=1",
        "-o cluster_size=2M",
        "-o compat=0.10",
        "-o compat=0.10,cluster_size=1k",
        "-o preallocation=metadata",
        "-c",
        "-c -o cluster_size=512",
        "-c -o compat=0.10",
        "-S 0",
    ] {
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a.qcow2").replace("  ", " "));
        assert_holds(&format!("qcow2:{}", images.path("a.qcow2")), &disk(1));
    }
    // No device is larger than the largest L1 table.
    images.qemu("create -q -f qcow2 @large 64T");
    let large = opened(format!("qcow2:{}", images.path("large"))).expect("opened").device;
    assert_eq!((large.size(), large.next_data(0..64 << 40).expect("told")), (64 << 40, None));
    large.read_at((64 << 40) - 1, &mut [0xff]).expect("read");
}

#[test]
fn zstd_and_extended_entries_are_read() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(1)).unwrap();
    for options in [
        "-c -o compression_type=zstd",
        "-c -o compression_type=zstd,cluster_size=512",
        "-c -o compression_type=zstd,cluster_size=2M",
        "-o extended_l2=on",
        "-o extended_l2=on,cluster_size=16k",
        "-c -o extended_l2=on,compression_type=zstd",
        "-o extended_l2=on,preallocation=metadata",
    ] {
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a.qcow2"));
        assert_holds(&format!("qcow2:{}", images.path("a.qcow2")), &disk(1));
    }
    // On a backing file that is smaller, and with a data file.
    let qemu_io = tool("qemu-io").expect("it comes with qemu-img");
    let create = "create -q -f qcow2 -F qcow2 -b @a.qcow2 -o extended_l2=on";
    images.qemu(&format!("{create} @top.qcow2 5M"));
    images.qemu("create -q -f qcow2 -o extended_l2=on,data_file=@data @apart.qcow2 5M");
    for name in ["top.qcow2", "apart.qcow2"] {
        let path = images.path(name);
        for write in ["write -P 1 6k 10k", "write -z 1M 6k", "write -P 2 4M 512", "discard 2M 64k"]
        {
            qemu_io.text(["-f", "qcow2", "-c", write, &path]).expect("written");
        }
        images.qemu(&format!("convert -f qcow2 -O raw @{name} @expected"));
        let expected = fs::read(images.path("expected")).unwrap();
        let url = format!("qcow2:{path}?backing=yes&data-file=yes");
        let device = opened(&url).expect("opened").device;
        let mut found = vec![0xff; expected.len()];
        device.read_at(0, &mut found).expect("read");
        assert!(found == expected, "{name}");
    }
}

#[test]
fn snapshots_are_read_by_their_names() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(1)).unwrap();
    let qemu_io = tool("qemu-io").expect("it comes with qemu-img");
    for options in ["-o cluster_size=4k", "-c", "-o compat=0.10", "-o extended_l2=on"] {
        images.qemu(&format!("convert -f raw -O qcow2 {options} @raw @a"));
        images.qemu("snapshot -c first @a");
        let path = images.path("a");
        qemu_io.text(["-f", "qcow2", "-c", "write -P 1 64k 128k", &path]).expect("written");
        images.qemu("snapshot -c second @a");
        qemu_io.text(["-f", "qcow2", "-c", "write -P 2 1M 1M", &path]).expect("written");
        for name in ["first", "second"] {
            images.qemu(&format!("convert -l {name} -f qcow2 -O raw @a @expected"));
            let expected = fs::read(images.path("expected")).unwrap();
            assert_holds(&format!("qcow2:{path}?snapshot={name}"), &expected);
        }
        assert_holds(&format!("qcow2:{path}?snapshot=1"), &disk(1));
        let said = refused(format!("qcow2:{path}?snapshot=third"));
        assert!(said.ends_with("no snapshot 'third' (known: first, second)"), "{said}");
    }
}

#[test]
fn holes_are_told_as_qemu_maps_them() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(2)).unwrap();
    images.qemu("convert -f raw -O qcow2 -o cluster_size=4k @raw @a.qcow2");
    let device = opened(format!("qcow2:{}", images.path("a.qcow2"))).expect("opened").device;
    let mut found = Vec::new();
    for run in device.data_ranges(0..device.size()).expect("told") {
        found.push((run.start, run.end));
    }
    let map: serde_json::Value =
        serde_json::from_str(&images.qemu("map --output=json -f qcow2 @a.qcow2")).expect("JSON");
    let mut expected: Vec<(u64, u64)> = Vec::new();
    for part in map.as_array().expect("a list") {
        let number = |name: &str| part[name].as_u64().expect("a number");
        if !part["zero"].as_bool().expect("a flag") {
            let (start, end) = (number("start"), number("start") + number("length"));
            match expected.last_mut() {
                Some(last) if last.1 == start => last.1 = end,
                _ => expected.push((start, end)),
            }
        }
    }
    assert_eq!(found, expected);
}

#[test]
fn files_that_an_image_names_are_opened_only_if_the_user_says_so() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let base = disk(3);
    fs::write(images.path("base.raw"), &base).unwrap();
    images.qemu("create -q -f qcow2 -F raw -b @base.raw @middle.qcow2");
    images.qemu("create -q -f qcow2 -F qcow2 -b @middle.qcow2 -o cluster_size=4k @top.qcow2 4M");
    let qemu_io = tool("qemu-io").expect("it comes with qemu-img");
    let write = |name: &str, command: &str| {
        let path = images.path(name);
        qemu_io.text(["-f", "qcow2", "-c", command, &path]).expect("written");
    };
    write("middle.qcow2", "write -P 1 64k 128k");
    write("top.qcow2", "write -P 2 128k 4k");
    write("top.qcow2", "write -z 1M 256k");
    images.qemu("convert -f qcow2 -O raw @top.qcow2 @expected");
    let expected = fs::read(images.path("expected")).unwrap();
    let url = format!("qcow2:{}", images.path("top.qcow2"));
    let middle = images.path("middle.qcow2");
    let said = refused(&url);
    assert!(
        said.contains(&format!("needs its backing file '{middle}': give backing=yes")),
        "{said}"
    );
    assert!(refused(format!("{url}?backing=no")).contains("give backing=yes"));
    assert!(refused(format!("{url}?backing=perhaps")).contains("`backing` is yes or no"));
    assert_holds(&format!("{url}?backing=yes"), &expected);

    fs::rename(images.path("base.raw"), images.path("moved")).unwrap();
    assert!(refused(format!("{url}?backing=yes")).contains("base.raw: "));
    // A circle of backing files; a backing file whose format is not named.
    images.qemu("rebase -u -F qcow2 -b @top.qcow2 @middle.qcow2");
    assert!(refused(format!("{url}?backing=yes")).contains("a circle"));
    let mut bytes = fs::read(&middle).unwrap();
    let kind = 0xe279_2aca_u32.to_be_bytes();
    let at = bytes.windows(4).position(|run| run == kind).expect("the format of the backing file");
    bytes[at] = 0;
    fs::write(&middle, bytes).unwrap();
    assert!(refused(format!("{url}?backing=yes")).contains("unknown format"));
    images.qemu("rebase -u -F raw -b json:{} @middle.qcow2");
    assert!(refused(format!("{url}?backing=yes")).contains("only paths of this machine"));

    images.qemu("create -q -f qcow2 -o data_file=@data @apart.qcow2 3M");
    write("apart.qcow2", "write -P 7 512k 1M");
    images.qemu("convert -f qcow2 -O raw @apart.qcow2 @expected");
    let url = format!("qcow2:{}", images.path("apart.qcow2"));
    assert!(refused(&url).contains("needs its data file"));
    assert_holds(&format!("{url}?data-file=yes"), &fs::read(images.path("expected")).unwrap());
}

#[test]
fn what_is_not_read_of_qcow2_is_refused_by_name() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let url = format!("qcow2:{}", images.path("a"));
    fs::write(images.path("a"), disk(1)).unwrap();
    assert!(refused(&url).ends_with("a: not a qcow2 image"));
    fs::write(images.path("a"), b"QFI").unwrap();
    assert!(refused(&url).ends_with("a: not a qcow2 image"));
    images.qemu("create -q -f qcow2 @a 3M");
    let mut bytes = fs::read(images.path("a")).unwrap();
    bytes[79] |= 64;
    fs::write(images.path("a"), bytes).unwrap();
    assert!(refused(&url).contains("not supported: unknown features of qcow2 (0x40)"));
}

#[test]
fn vmdk_extents_are_read() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(4)).unwrap();
    for subformat in ["monolithicFlat", "twoGbMaxExtentFlat"] {
        images.qemu(&format!(
            "convert -f raw -O vmdk -o subformat={subformat} @raw @{subformat}.vmdk"
        ));
        let url = format!("vmdk:{}", images.path(&format!("{subformat}.vmdk")));
        assert!(refused(&url).contains("give extents=yes"), "{subformat}");
        assert_holds(&format!("{url}?extents=yes"), &disk(4));
    }
    let descriptor = fs::read_to_string(images.path("monolithicFlat.vmdk")).unwrap();
    let elsewhere = descriptor.replace("\"monolithicFlat", "\"../monolithicFlat");
    fs::write(images.path("b.vmdk"), elsewhere).unwrap();
    let url = format!("vmdk:{}?extents=yes", images.path("b.vmdk"));
    assert!(refused(&url).contains("not in the directory of the descriptor"));
    for subformat in ["monolithicSparse", "streamOptimized"] {
        images.qemu(&format!(
            "convert -f raw -O vmdk -o subformat={subformat} @raw @{subformat}.vmdk"
        ));
        assert_holds(&format!("vmdk:{}", images.path(&format!("{subformat}.vmdk"))), &disk(4));
    }
    images.qemu("convert -f raw -O vmdk -o subformat=twoGbMaxExtentSparse @raw @two.vmdk");
    let url = format!("vmdk:{}", images.path("two.vmdk"));
    assert!(refused(&url).contains("give extents=yes"));
    assert_holds(&format!("{url}?extents=yes"), &disk(4));
    images.qemu("create -q -f vmdk -F vmdk -b @monolithicSparse.vmdk @child.vmdk");
    let said = refused(format!("vmdk:{}", images.path("child.vmdk")));
    assert!(said.contains("not supported: a link to a parent disk"), "{said}");
    assert!(refused(format!("vmdk:{}", images.path("raw"))).contains("not a vmdk image"));
}

#[test]
fn vhd_and_vhdx_images_of_qemu_read_as_it_converts_them() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(6)).unwrap();
    for (scheme, format, options) in [
        ("vhd", "vpc", "-o subformat=dynamic,force_size=on"),
        ("vhd", "vpc", "-o subformat=fixed,force_size=on"),
        // The size is rounded up to one of cylinders, heads and sectors.
        ("vhd", "vpc", "-o subformat=dynamic"),
        ("vhdx", "vhdx", "-o subformat=dynamic"),
        ("vhdx", "vhdx", "-o subformat=fixed"),
        ("vhdx", "vhdx", "-o subformat=dynamic,block_size=1M"),
        ("vhdx", "vhdx", "-o subformat=dynamic,block_size=256M"),
    ] {
        images.qemu(&format!("convert -f raw -O {format} {options} @raw @a"));
        images.qemu(&format!("convert -f {format} -O raw @a @expected"));
        let expected = fs::read(images.path("expected")).unwrap();
        assert!(expected.starts_with(&disk(6)), "{options}");
        assert_holds(&format!("{scheme}:{}", images.path("a")), &expected);
    }
    // Tables that are not of one part: between the blocks of VHDX are entries of bitmaps.
    images.qemu("create -q -f vhdx -o block_size=1M @far.vhdx 20G");
    images.qemu("create -q -f vpc -o force_size=on @far.vhd 20G");
    let qemu_io = tool("qemu-io").expect("it comes with qemu-img");
    for (name, format, scheme) in [("far.vhdx", "vhdx", "vhdx"), ("far.vhd", "vpc", "vhd")] {
        let path = images.path(name);
        for write in ["write -P 3 9000M 64k", "write -P 4 20000M 64k", "write -P 5 512 512"] {
            qemu_io.text(["-f", format, "-c", write, &path]).expect("written");
        }
        let device = opened(format!("{scheme}:{path}")).expect("opened").device;
        for (at, byte) in [(9000 << 20, 3), (20_000 << 20, 4), (512, 5), (0, 0), (1 << 30, 0)] {
            let mut found = [0xff; 512];
            device.read_at(at, &mut found).expect("read");
            assert_eq!(found, [byte; 512], "{name}: {at}");
        }
        let told = device.data_ranges(0..device.size()).expect("told");
        assert!(told.len() == 3 && told[1].contains(&(9000 << 20)), "{name}: {told:?}");
    }
}

#[test]
fn what_is_not_read_of_vhd_and_vhdx_is_refused_by_name() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    images.qemu("create -q -f vpc @a 3M");
    let mut bytes = fs::read(images.path("a")).unwrap();
    for footer in [0, bytes.len() - 512] {
        // A differencing disk; the checksum is smaller by one.
        bytes[footer + 63] += 1;
        let sum = u32::from_be_bytes(bytes[footer + 64..footer + 68].try_into().unwrap()) - 1;
        bytes[footer + 64..footer + 68].copy_from_slice(&sum.to_be_bytes());
    }
    fs::write(images.path("a"), &bytes).unwrap();
    let url = format!("vhd:{}", images.path("a"));
    assert!(refused(&url).contains("not supported: a differencing disk of VHD"));
    for footer in [0, bytes.len() - 512] {
        bytes[footer + 20] ^= 1;
    }
    fs::write(images.path("a"), &bytes).unwrap();
    assert!(refused(&url).ends_with("damaged image: the checksum of the footer"));
    images.qemu("create -q -f vhdx @a 3M");
    assert!(refused(&url).ends_with("not a vhd image"));
    let url = format!("vhdx:{}", images.path("a"));
    let writing = open(&url, &Schemes::default(), Access::ReadWrite, &FileDeviceOptions::new());
    assert!(writing.expect_err("only read").to_string().contains("write overlay:vhdx:PATH"));
    fs::write(images.path("a"), disk(1)).unwrap();
    assert!(refused(&url).ends_with("not a vhdx image"));
    assert!(refused(format!("sparse:{}", images.path("a"))).ends_with("not a sparse image"));
}

/// A sparse image of Android with this disk, in chunks of each kind.
fn sparse(disk: &[u8], block: usize) -> Vec<u8> {
    let (mut chunks, mut count) = (Vec::new(), 0_u32);
    let mut add = |kind: u16, blocks: usize, data: &[u8]| {
        chunks.extend(kind.to_le_bytes());
        chunks.extend([0; 2]);
        chunks.extend((blocks as u32).to_le_bytes());
        chunks.extend((12 + data.len() as u32).to_le_bytes());
        chunks.extend(data);
        count += 1;
    };
    let fill = |bytes: &[u8]| bytes.chunks(4).all(|part| part == &bytes[..4]);
    let mut rest = disk;
    while !rest.is_empty() {
        let first = &rest[..block];
        let is_alike = |other: &&[u8]| fill(first) && *other == first;
        let alike = rest.chunks(block).take_while(is_alike).count();
        match alike {
            0 => {
                let raw = rest.chunks(block).take(7).take_while(|bytes| !fill(bytes)).count();
                add(0xcac1, raw, &rest[..raw * block]);
                add(0xcac4, 0, &[1, 2, 3, 4]);
                rest = &rest[raw * block..];
            }
            count => {
                match first[..4] {
                    [0, 0, 0, 0] if count > 1 => add(0xcac3, count, &[]),
                    _ => add(0xcac2, count, &first[..4]),
                }
                rest = &rest[count * block..];
            }
        }
    }
    let mut image = 0xed26_ff3a_u32.to_le_bytes().to_vec();
    for number in [1_u16, 0, 28, 12] {
        image.extend(number.to_le_bytes());
    }
    for number in [block as u32, (disk.len() / block) as u32, count, 0] {
        image.extend(number.to_le_bytes());
    }
    image.extend(chunks);
    image
}

#[test]
fn sparse_images_of_android_are_read() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    let url = format!("sparse:{}", images.path("a"));
    let mut pattern = disk(7);
    for (at, byte) in pattern[1 << 20..2 << 20].iter_mut().enumerate() {
        *byte = at as u8 % 4;
    }
    for (disk, block) in [(disk(7), 4096), (disk(8), 512), (pattern, 4096)] {
        fs::write(images.path("a"), sparse(&disk, block)).unwrap();
        assert_holds(&url, &disk);
    }
    // As simg2img makes it, where it is installed.
    if let Some(simg2img) = tool("simg2img") {
        let (from, to) = (images.path("a"), images.path("expected"));
        simg2img.text([&from, &to]).expect("converted");
        assert_holds(&url, &fs::read(&to).unwrap());
    }
}

#[test]
fn sparse_images_of_android_are_made() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    for (seed, size) in [(7, SIZE), (8, SIZE - 512), (9, SIZE - 1024)] {
        let _ = fs::remove_file(images.path("new"));
        let url = format!("sparse:{}", images.path("new"));
        let options = FileDeviceOptions::new().create(true).size(size as u64);
        let make = || open(&url, &Schemes::default(), Access::ReadWrite, &options);
        let mut expected = disk(seed);
        expected.truncate(size);
        // Blocks that are written and are zeroes, and some that are given back.
        expected[1 << 20..(1 << 20) + 8192].fill(0);
        expected[2 << 20..(2 << 20) + 65_536].fill(0);
        let made = make().expect("made");
        for run in [0..1 << 20, (1 << 20)..(1 << 20) + 8192, 2 << 20..size] {
            made.device.write_at(run.start as u64, &expected[run.clone()]).expect("written");
        }
        expected[(1 << 20) + 8192..2 << 20].fill(0);
        made.device.discard(2 << 20..(2 << 20) + 65_536).expect("discarded");
        // An image that is not complete has no name.
        assert!(!Path::new(&images.path("new")).exists());
        made.finish().expect("stored");
        assert_holds(&url, &expected);
        let kinds = chunks_of(&fs::read(images.path("new")).unwrap(), &expected);
        for kind in [0xcac1, 0xcac2, 0xcac3] {
            assert!(kinds.contains(&kind), "{kind:#x}: {kinds:x?}");
        }
        if let Some(simg2img) = tool("simg2img") {
            simg2img.text([images.path("new"), images.path("found")]).expect("converted");
            assert!(fs::read(images.path("found")).unwrap() == expected);
        }
        let said = make().expect_err("it is there").to_string();
        assert!(said.contains("a sparse image is not changed in place: make a new one"), "{said}");
    }
}

/// The kinds of the chunks of a sparse image, which are read by the format alone and compared.
fn chunks_of(image: &[u8], expected: &[u8]) -> Vec<u16> {
    let half = |at: usize| u16::from_le_bytes(image[at..at + 2].try_into().unwrap());
    let word = |at: usize| u32::from_le_bytes(image[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(word(0), 0xed26_ff3a);
    assert_eq!((half(4), half(8), half(10)), (1, 28, 12));
    let (block, blocks, chunks) = (word(12), word(16), word(20));
    let (mut at, mut disk, mut kinds) = (28, 0, Vec::new());
    for _ in 0..chunks {
        let (kind, length) = (half(at), word(at + 4) * block);
        let part = &expected[disk..disk + length];
        let data = &image[at + 12..at + word(at + 8)];
        match kind {
            0xcac1 => assert!(data == part),
            0xcac2 => assert!(data.len() == 4 && part.chunks(4).all(|four| four == data)),
            0xcac3 => assert!(data.is_empty() && part.iter().all(|byte| *byte == 0)),
            _ => panic!("{kind:#x}"),
        }
        kinds.push(kind);
        (at, disk) = (at + word(at + 8), disk + length);
    }
    assert_eq!((at, disk), (image.len(), blocks * block));
    assert_eq!(disk, expected.len());
    kinds
}

/// Any bytes are refused or read, in bounded time and memory.
#[test]
fn damaged_images_give_errors() {
    let Some(images) = Images::new() else { skip!("qemu-img is missing") };
    fs::write(images.path("raw"), disk(5)).unwrap();
    images.qemu("convert -c -f raw -O qcow2 -o cluster_size=4k @raw @a");
    images.qemu("convert -f raw -O qcow2 -o cluster_size=512 @raw @b");
    images.qemu("convert -f raw -O vmdk -o subformat=monolithicFlat @raw @c.vmdk");
    images.qemu("convert -f raw -O vmdk @raw @d.vmdk");
    images.qemu("convert -f raw -O vmdk -o subformat=streamOptimized @raw @e.vmdk");
    images.qemu("convert -f raw -O vpc @raw @f");
    images.qemu("convert -f raw -O vhdx -o block_size=1M @raw @g");
    fs::write(images.path("h"), sparse(&disk(5), 4096)).unwrap();
    images.qemu("convert -c -f raw -O qcow2 -o extended_l2=on,compression_type=zstd @raw @i");
    images.qemu("convert -f raw -O qcow2 -o cluster_size=4k @raw @j");
    images.qemu("snapshot -c old @j");
    let time = match std::env::var_os("EXTANT_SLOW") {
        Some(_) => Duration::from_secs(60),
        None => Duration::from_secs(1),
    };
    let (mut read, mut failed, mut refused) = (0, 0, 0);
    for (name, scheme, metadata) in [
        ("a", "qcow2", 64 << 10),
        ("b", "qcow2", 64 << 10),
        ("c.vmdk", "vmdk", 4 << 10),
        ("d.vmdk", "vmdk", 64 << 10),
        ("e.vmdk", "vmdk", 64 << 10),
        ("f", "vhd", 4 << 10),
        ("g", "vhdx", 4 << 20),
        ("h", "sparse", 64 << 10),
        ("i", "qcow2", 256 << 10),
        ("j", "qcow2", 64 << 10),
    ] {
        let sound = fs::read(images.path(name)).unwrap();
        let damaged = images.path("damaged.vmdk");
        let options = match (scheme, name) {
            ("vmdk", _) => "?extents=yes",
            (_, "j") => "?snapshot=old",
            _ => "",
        };
        let url = format!("{scheme}:{damaged}{options}");
        let (clock, mut random) = (Env::threads(), Random::new(11));
        while clock.elapsed() < time {
            let mut bytes = sound.clone();
            for _ in 0..1 + random.below(4) {
                // Headers and tables are at the beginning.
                let limit = [112, metadata, bytes.len()][random.below(3)].min(bytes.len());
                let at = random.below(limit);
                bytes[at] = match random.below(3) {
                    0 => bytes[at] ^ (1 << random.below(8)),
                    1 => 0xff,
                    _ => random.below(256) as u8,
                };
            }
            if random.below(20) == 0 {
                bytes.truncate(random.below(bytes.len()));
            }
            if scheme == "vhdx" && random.below(4) != 0 {
                seal_vhdx(&mut bytes);
            }
            fs::write(&damaged, &bytes).unwrap();
            match opened(&url) {
                Ok(opened) if opened.device.size() <= 1 << 30 => match use_all(&*opened.device) {
                    true => read += 1,
                    false => failed += 1,
                },
                Ok(_) => {}
                Err(error) => {
                    assert!(!error.to_string().is_empty());
                    refused += 1;
                }
            }
        }
    }
    eprintln!("{read} read, {failed} failed while they were read, {refused} refused");
    assert!(read > 0 && refused > 0);
    assert!(peak_memory() < 1 << 30, "{} bytes of memory", peak_memory());
}

/// Corrects the checksums of a VHDX image, so that what they protect is looked at.
fn seal_vhdx(bytes: &mut [u8]) {
    for (at, length) in [(64, 4), (128, 4), (192, 64), (256, 64)] {
        let Some(part) = bytes.get_mut(at << 10..(at + length) << 10) else { continue };
        part[4..8].fill(0);
        let sum = checksum(CrcAlgorithm::Crc32Iscsi, part) as u32;
        part[4..8].copy_from_slice(&sum.to_le_bytes());
    }
}

fn use_all(device: &dyn Device) -> bool {
    let mut bytes = vec![0; (device.size() as usize).min(8 << 20)];
    let read = device.read_at(0, &mut bytes).is_ok();
    let told = data_runs(device, 0..device.size()).take(10_000).all(|run| run.is_ok());
    read && told
}

/// Bytes of memory that the process had at most.
fn peak_memory() -> u64 {
    let status = fs::read_to_string(Path::new("/proc/self/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let number = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}
