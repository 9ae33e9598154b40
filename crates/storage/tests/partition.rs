//! Partition tables, whole and damaged. Tables are made by sfdisk, and by hand from the UEFI
//! specification.

use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;

use extant_device::{Device, FileDevice, MemoryDevice, SliceDevice};
use extant_storage::partition::{
    self, PartitionContent, PartitionError, PartitionTable, TableKind,
};
use extant_testkit::{LoopDevice, TempImage, skip, tool};
use proptest::prelude::*;

#[path = "common/tables.rs"]
mod tables;
use tables::{LINUX_GUID, MIB, gpt_disk, seal};

fn runs(table: &PartitionTable) -> Vec<Part> {
    table.partitions.iter().map(|part| (part.number, part.start, part.size)).collect()
}

fn damage(device: &MemoryDevice, at: u64) {
    let mut byte = [0];
    device.read_at(at, &mut byte).expect("it fits");
    device.write_at(at, &[!byte[0]]).expect("it fits");
}

#[test]
fn a_gpt_of_either_sector_size_is_read() {
    for sector_size in [512, 4096] {
        let table = PartitionTable::read(&gpt_disk(sector_size)).expect("a table");
        let sector = sector_size as u64;
        assert_eq!((table.kind, u64::from(table.sector_size)), (TableKind::Gpt, sector));
        assert_eq!(runs(&table), [(1, 100 * sector, 100 * sector), (3, 200 * sector, sector)]);
        assert_eq!(table.partitions[0].content, PartitionContent::Gpt(LINUX_GUID));
        assert!(!table.from_backup);
    }
}

#[test]
fn the_backup_is_read_where_the_first_header_or_its_entries_are_damaged() {
    for sector_size in [512, 4096] {
        for at in [
            sector_size + 16,
            sector_size,
            sector_size + 24,
            2 * sector_size + 40,
            2 * sector_size + 16000,
        ] {
            let device = gpt_disk(sector_size as usize);
            damage(&device, at);
            let table = PartitionTable::read(&device).expect("a table");
            assert!(table.from_backup, "damage at {at}");
            assert_eq!(
                runs(&table),
                [(1, 100 * sector_size, 100 * sector_size), (3, 200 * sector_size, sector_size)]
            );
        }
    }
}

#[test]
fn a_gpt_with_both_copies_damaged_is_refused_with_the_first_flaw() {
    let device = gpt_disk(512);
    damage(&device, 512 + 40);
    damage(&device, 4 * MIB - 512 + 40);
    let error = PartitionTable::read(&device).expect_err("both are damaged").to_string();
    assert!(
        error.starts_with("partition table damaged: GPT header in sector 1: checksum 0x"),
        "{error}"
    );
}

#[test]
fn a_gpt_that_was_wiped_is_missed_by_its_mbr() {
    let device = gpt_disk(512);
    device.write_at(512, &[0; 512]).expect("it fits");
    device.write_at(4 * MIB - 512, &[0; 512]).expect("it fits");
    let error = PartitionTable::read(&device).expect_err("it is gone").to_string();
    assert_eq!(
        error,
        "partition table damaged: GPT: announced by the MBR, but no valid header found"
    );
}

#[test]
fn a_gpt_without_its_protective_mbr_is_read() {
    let device = gpt_disk(512);
    device.write_at(0, &[0; 512]).expect("it fits");
    assert_eq!(PartitionTable::read(&device).expect("a table").partitions.len(), 2);
}

/// Sealed lies: each field of the first header that bounds what is read, too large; the backup is
/// gone.
#[test]
fn sealed_headers_that_lie_are_refused_by_field() {
    let lie = |at: usize, bytes: &[u8]| {
        let device = gpt_disk(512);
        device.write_at(4 * MIB - 512, &[0; 512]).expect("it fits");
        let mut header = [0; 512];
        device.read_at(512, &mut header).expect("it fits");
        header[at..at + bytes.len()].copy_from_slice(bytes);
        seal(&mut header);
        device.write_at(512, &header).expect("it fits");
        let error = PartitionTable::read(&device).expect_err("a lie").to_string();
        error
            .strip_prefix("partition table damaged: GPT header in sector 1: ")
            .expect(&error)
            .to_owned()
    };
    assert_eq!(lie(24, &[2]), "gives its own location as sector 2");
    assert_eq!(lie(72, &[0xff; 8]), format!("entries in sector {}, past the end", u64::MAX));
    assert_eq!(lie(72, &8192_u64.to_le_bytes()), "entries in sector 8192, past the end");
    assert_eq!(
        lie(80, &[0xff; 4]),
        format!("{} bytes of entries, at most 4194304 are read", 128 * u64::from(u32::MAX))
    );
    assert_eq!(lie(84, &[0xff; 4]), format!("entries of {} bytes", u32::MAX));
    assert_eq!(lie(84, &[0; 4]), "entries of 0 bytes");
    assert_eq!(lie(12, &[91]), "header of 91 bytes");
    assert_eq!(lie(12, &513_u32.to_le_bytes()), "header of 513 bytes");
}

#[test]
fn a_partition_that_is_not_there_or_not_on_the_device_is_named() {
    let device = Arc::new(gpt_disk(512));
    let error = partition::open(device.clone(), 2).expect_err("entry 2 is not used");
    assert_eq!(error.to_string(), "no partition 2: the table has 1, 3");
    let cut = Arc::new(SliceDevice::new(device, 0, 150 * 512).expect("it fits"));
    let error = partition::open(cut, 1).expect_err("the image is cut short");
    assert!(matches!(error, PartitionError::OutOfDevice { number: 1, .. }), "{error}");
}

/// Type, first sector and sectors.
type Entry = (u8, u32, u32);

/// A boot record with these entries.
fn boot_record(entries: &[Entry]) -> [u8; 512] {
    let mut record = [0; 512];
    for (index, (content, start, sectors)) in entries.iter().enumerate() {
        let entry = &mut record[446 + 16 * index..][..16];
        entry[4] = *content;
        entry[8..12].copy_from_slice(&start.to_le_bytes());
        entry[12..].copy_from_slice(&sectors.to_le_bytes());
    }
    record[510..].copy_from_slice(&[0x55, 0xaa]);
    record
}

fn mbr_disk(records: &[(u64, &[Entry])]) -> MemoryDevice {
    let device = MemoryDevice::new(4 * MIB);
    for (sector, entries) in records {
        device.write_at(sector * 512, &boot_record(entries)).expect("it fits");
    }
    device
}

#[test]
fn an_mbr_with_logical_partitions_is_read() {
    let device = mbr_disk(&[
        (0, &[(0x83, 64, 100), (0, 0, 0), (0x05, 1000, 3000), (0x82, 4000, 10)]),
        (1000, &[(0x83, 2, 50), (0x05, 500, 100)]),
        (1500, &[(0x83, 3, 60)]),
    ]);
    let table = PartitionTable::read(&device).expect("a table");
    assert_eq!((table.kind, table.sector_size), (TableKind::Mbr, 512));
    let expected = [(1, 64, 100), (3, 1000, 3000), (4, 4000, 10), (5, 1002, 50), (6, 1503, 60)];
    assert_eq!(
        runs(&table),
        expected.map(|(number, start, size)| (number, start * 512, size * 512))
    );
    assert_eq!(table.partitions[4].content, PartitionContent::Mbr(0x83));
}

#[test]
fn a_chain_that_loops_is_refused() {
    let device = mbr_disk(&[
        (0, &[(0x0f, 1000, 3000)]),
        (1000, &[(0x83, 2, 50), (0x05, 500, 100)]),
        (1500, &[(0x83, 3, 60), (0x05, 500, 100)]),
    ]);
    let error = PartitionTable::read(&device).expect_err("a loop").to_string();
    assert_eq!(
        error,
        "partition table damaged: extended boot record in sector 1500: the chain has a loop"
    );
}

#[test]
fn a_chain_that_leaves_the_device_or_breaks_is_refused() {
    let device = mbr_disk(&[(0, &[(0x0f, u32::MAX, 3000)])]);
    let error = PartitionTable::read(&device).expect_err("it leaves the device").to_string();
    let place = "partition table damaged: extended boot record in sector";
    assert_eq!(error, format!("{place} 4294967295: past the end of the device"));
    let device =
        mbr_disk(&[(0, &[(0x0f, 1000, 3000)]), (1000, &[(0x83, 2, 50), (0x05, 500, 100)])]);
    let error = PartitionTable::read(&device).expect_err("it breaks").to_string();
    assert_eq!(error, format!("{place} 1500: no signature"));
}

#[test]
fn a_device_without_a_table_is_told_from_a_damaged_one() {
    let none = |device: &MemoryDevice| {
        matches!(PartitionTable::read(device), Err(PartitionError::NoTable))
    };
    assert!(none(&MemoryDevice::new(MIB)));
    assert!(none(&MemoryDevice::new(100)));
    assert!(none(&MemoryDevice::new(0)));
    // The boot sector of a file system: the signature, and code where the entries would be.
    let mut boot_sector = [0x90; 512];
    boot_sector[510..].copy_from_slice(&[0x55, 0xaa]);
    assert!(none(&MemoryDevice::from_bytes(&boot_sector)));
}

/// A partition's number, first byte and bytes.
type Part = (u32, u64, u64);

/// A disk partitioned by sfdisk, and what sfdisk says about it.
struct Partitioned {
    image: TempImage,
    parts: Vec<Part>,
}

fn by_sfdisk(script: &str, sector_size: u32) -> Result<Partitioned, String> {
    let sfdisk = tool("sfdisk").ok_or("no sfdisk here")?;
    let image = TempImage::of_size(64 * MIB).expect("a scratch file");
    // sfdisk takes the size of a sector from a block device.
    let block = (sector_size != 512)
        .then(|| LoopDevice::with_sectors(&image.path(), sector_size))
        .transpose()?;
    let disk = block.as_ref().map_or(image.path(), |block| block.path().to_owned());
    let mut child = sfdisk
        .command()
        .args(["-q", "--no-reread", "--no-tell-kernel"])
        .arg(&disk)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("sfdisk starts");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(script.as_bytes())
        .expect("sfdisk reads its script");
    assert!(child.wait().expect("sfdisk ends").success());
    let disk = disk.display().to_string();
    let dump = sfdisk.text(["-d", &disk]).expect("sfdisk dumps");
    let field = |line: &str, name: &str| -> u64 {
        let (_, rest) = line.split_once(name).expect(name);
        rest.trim_start_matches(['=', ' '])
            .split(',')
            .next()
            .expect(name)
            .trim()
            .parse()
            .expect(name)
    };
    let part = |line: &str| {
        let (name, rest) = line.strip_prefix(&disk)?.split_once(" :")?;
        let sector = u64::from(sector_size);
        let number = name.trim_start_matches('p').parse().ok()?;
        Some((number, field(rest, "start") * sector, field(rest, "size") * sector))
    };
    let parts = dump.lines().filter_map(part).collect();
    Ok(Partitioned { image, parts })
}

#[test]
fn tables_made_by_sfdisk_are_read_as_sfdisk_reads_them() {
    let gpt = "label: gpt\nsize=10MiB\nsize=5MiB, type=uefi\nsize=1MiB\n";
    let mbr = "label: dos\nsize=10MiB\nsize=20MiB, type=83\nsize=5MiB, bootable\n";
    let logical = "label: dos\n1: size=10MiB\n2: size=40MiB, type=5\n5: size=5MiB\n6: size=6MiB\n7: size=7MiB\n";
    for (script, sector_size) in [(gpt, 512), (mbr, 512), (logical, 512), (gpt, 4096)] {
        let disk = match by_sfdisk(script, sector_size) {
            Ok(disk) => disk,
            Err(why) => skip!("sectors of {sector_size}: {why}"),
        };
        assert!(disk.parts.len() >= 3, "{:?}", disk.parts);
        let device = FileDevice::open(disk.image.path()).expect("it is there");
        let table = PartitionTable::read(&device).expect("a table");
        assert_eq!(
            (runs(&table), table.sector_size),
            (disk.parts.clone(), sector_size),
            "{script}"
        );
        let last = disk.parts.last().expect("three or more");
        let slice = partition::open(Arc::new(device), last.0).expect("a partition");
        assert_eq!((slice.start(), slice.size()), (last.1, last.2));
    }
}

/// sfdisk writes the backup too: it is enough when the first MiB is lost.
#[test]
fn the_backup_of_sfdisk_is_read() {
    let Partitioned { image, parts } = match by_sfdisk("label: gpt\nsize=10MiB\nsize=5MiB\n", 512) {
        Ok(disk) => disk,
        Err(why) => skip!("{why}"),
    };
    let device = extant_device::FileDeviceOptions::new()
        .write(true)
        .open(image.path())
        .expect("it is there");
    device.write_zeroes(0..MIB).expect("it fits");
    let table = PartitionTable::read(&device).expect("a table");
    assert!(table.from_backup);
    assert_eq!(runs(&table), parts);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes may be refused; what is accepted is within arithmetic, and nothing panics.
    #[test]
    fn damaged_tables_are_read_or_refused(
        kind in 0..3, changes in proptest::collection::vec((0..40_u64 * 512, any::<u8>()), 0..12), seal_again: bool,
    ) {
        let device = match kind {
            0 => gpt_disk(512),
            1 => gpt_disk(4096),
            _ => mbr_disk(&[
                (0, &[(0x83, 1, 5), (0x05, 8, 30)]),
                (8, &[(0x83, 2, 5), (0x05, 9, 20)]),
                (17, &[(0x83, 1, 3)]),
            ]),
        };
        for (at, byte) in changes {
            // Mostly where it matters.
            let at = if at % 3 == 0 { at % 600 } else { at };
            device.write_at(at, &[byte]).expect("it fits");
        }
        if seal_again {
            let mut header = [0; 512];
            device.read_at(512, &mut header).expect("it fits");
            seal(&mut header);
            device.write_at(512, &header).expect("it fits");
        }
        if let Ok(table) = PartitionTable::read(&device) {
            let device: Arc<dyn Device> = Arc::new(device);
            for part in &table.partitions {
                if let Ok(slice) = partition::open(device.clone(), part.number) {
                    prop_assert!(slice.start() + slice.size() <= device.size());
                }
            }
        }
    }
}
