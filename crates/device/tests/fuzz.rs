//! Bolero harnesses for what this crate reads: names of images, partition tables, undo files.
//! As tests they run for a moment each; `cargo xtask fuzz` runs them for longer.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bolero::TypeGenerator;
use extant_device::undo::{Check, UndoDevice, apply};
use extant_device::url::{DeviceUrl, Found, Target};
use extant_device::{Device, MemoryDevice, PartitionTable, SliceDevice};
use extant_testkit::Scratch;
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

#[path = "common/tables.rs"]
mod tables;

/// A piece of a name.
#[derive(Clone, Debug, TypeGenerator)]
enum Piece {
    Known(u8),
    Number(u64),
    Bytes(Vec<u8>),
}

const PIECES: [&str; 18] = [
    "disk.img",
    "/",
    ":/",
    "#p",
    "#",
    "?",
    "offset=",
    "size=",
    "&",
    "./",
    "..",
    "crypt:",
    "model:hdd:",
    "https://",
    "s3://",
    "k",
    "T",
    "a",
];

impl Piece {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Known(piece) => PIECES[usize::from(*piece) % PIECES.len()].into(),
            Self::Number(number) => number.to_string().into(),
            // No path of a host holds a NUL.
            Self::Bytes(bytes) => bytes.iter().copied().filter(|byte| *byte != 0).collect(),
        }
    }
}

#[test]
fn image_url() {
    type Input = (Vec<Piece>, Vec<u8>, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(pieces, there, is_any_there)| {
            let text = pieces.iter().flat_map(Piece::bytes).collect::<Vec<u8>>();
            let text = OsStr::from_bytes(&text);
            // What the host has follows from the name's length.
            let look = |path: &Path| match path.as_os_str().len() {
                length if there.contains(&(length as u8)) => Found::Device,
                length if *is_any_there && length % 3 == 0 => Found::Device,
                length if length % 7 == 0 => Found::Other,
                _ => Found::Nothing,
            };
            let is_part = |device: &DeviceUrl| {
                text.as_bytes().starts_with(device.path.as_os_str().as_bytes())
            };
            if let Ok(device) = DeviceUrl::parse(text, look) {
                assert!(is_part(&device), "{device:?}");
                assert_ne!(device.partition, Some(0));
            }
            match Target::parse(text, look) {
                Ok(Target::Inside { image, path }) => {
                    assert!(is_part(&image) && look(&image.path) == Found::Device);
                    assert!(path.as_bytes().starts_with(b"/"));
                    assert!(text.as_bytes().ends_with(path.as_bytes()));
                }
                Ok(Target::Host(path)) => assert_eq!(path.as_os_str(), text),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        },
    );
}

/// The parts of a disk that hold a table.
fn read_partitions(disk: &Arc<MemoryDevice>) {
    let Ok(table) = PartitionTable::read(&**disk) else { return };
    for partition in &table.partitions {
        assert_eq!(
            table.partition(partition.number).map(|it| it.number).ok(),
            Some(partition.number)
        );
        if let Ok(slice) = SliceDevice::partition(disk.clone(), partition.number) {
            let mut last = [0; 1];
            slice.read_at(slice.size() - 1, &mut last).unwrap();
        }
    }
}

#[test]
fn guid_partition_table() {
    type Input = (bool, Damage, Damage, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(is_large, damage, entries_damage, is_mended)| {
            let sector: usize = if *is_large { 4096 } else { 512 };
            let disk = tables::gpt_disk(sector);
            let mut front = vec![0; 2 * sector + 128 * 128];
            disk.read_at(0, &mut front).unwrap();
            let entries = entries_damage.in_place(&front[2 * sector..]);
            let mut header = damage.in_place(&front[sector..2 * sector]);
            if *is_mended {
                header[88..92].copy_from_slice(&tables::crc32(&entries).to_le_bytes());
                tables::seal(&mut header);
            }
            disk.write_at(sector as u64, &header).unwrap();
            disk.write_at(2 * sector as u64, &entries).unwrap();
            read_partitions(&Arc::new(disk));
        },
    );
}

#[test]
fn dos_partition_table() {
    type Entries = Vec<(u8, u16, u16)>;
    type Input = (Vec<(u16, Entries)>, Damage);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(|(tables, damage)| {
        // Tables all over the disk, extended partitions that lead to any of them, also back.
        let disk = MemoryDevice::new(1 << 20);
        for (index, (at, entries)) in tables.iter().enumerate() {
            let mut sector = [0; 512];
            for (entry, (kind, start, size)) in sector[446..510].chunks_mut(16).zip(entries) {
                entry[4] = [0x83, 0x05, 0x0f, 0x85, 0x82, *kind][usize::from(*kind) % 6];
                entry[8..12].copy_from_slice(&u32::from(*start % 2048).to_le_bytes());
                entry[12..16].copy_from_slice(&u32::from(*size).to_le_bytes());
            }
            sector[510..].copy_from_slice(&[0x55, 0xaa]);
            let sector = if index == 0 { damage.in_place(&sector) } else { sector.to_vec() };
            let at = if index == 0 { 0 } else { u64::from(*at % 2048) };
            disk.write_at(at * 512, &sector).unwrap();
        }
        read_partitions(&Arc::new(disk));
    });
}

#[test]
fn undo_file() {
    let scratch = Scratch::new();
    let path = scratch.join("undo");
    let disk: Arc<dyn Device> = Arc::new(MemoryDevice::from_bytes(&[7; 1 << 18]));
    let device = UndoDevice::create(disk, &path).unwrap();
    device.write_at(1000, &[1; 5000]).unwrap();
    device.write_at(200_000, &[2; 100]).unwrap();
    device.finish().unwrap();
    let mut changed = vec![0; 1 << 18];
    device.read_at(0, &mut changed).unwrap();
    let written = fs::read(&path).unwrap();
    let damaged = scratch.join("damaged");
    bolero::check!().with_type::<(Damage, bool)>().with_test_time(FUZZ_TIME).for_each(
        |(damage, is_forced)| {
            fs::write(&damaged, damage.to(&written)).unwrap();
            let target = MemoryDevice::from_bytes(&changed);
            let check = if *is_forced { Check::SizeOnly } else { Check::Same };
            let _ = apply(&damaged, &target, check, false);
        },
    );
}
