//! Bolero harnesses for what this crate reads: names of images, partition tables, LVM2 and LUKS
//! metadata, undo files. As tests they run for a moment each; `cargo xtask fuzz` runs them for
//! longer.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use bolero::TypeGenerator;
use extant_device::undo::{ApplyOptions, Check, FsOffset, UndoDevice, apply};
use extant_device::{Device, FileDeviceOptions, MemoryDevice};
use extant_storage::crypt::CryptDevice;
use extant_storage::partition::{self, PartitionTable};
use extant_storage::{
    Backend, BackendUrl, DeviceUrl, HostFile, Location, OpenBackend, PathTarget, Schemes, UrlError,
    UrlOptions,
};
use extant_testkit::Scratch;
use extant_testkit::fuzz::{Damage, FUZZ_TIME};

#[path = "common/luks.rs"]
mod luks_format;
#[path = "common/lvm.rs"]
mod lvm_format;
#[path = "common/tables.rs"]
mod tables;

/// A part of a name.
#[derive(Clone, Debug, TypeGenerator)]
enum NamePart {
    Known(u8),
    Number(u64),
    Bytes(Vec<u8>),
}

const KNOWN_PARTS: [&str; 35] = [
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
    "linear:",
    "lvm:",
    "overlay:",
    "upper=",
    "qcow2:",
    "vmdk:",
    "backing=yes",
    "nbd://",
    "nbd+unix:///",
    "socket=",
    ",",
    "cipher=aes-xts-plain64",
    "key-file=",
    "lv=",
    "model:nvme:",
    "vhd:",
    "vhdx:",
    "sparse:",
    "https://",
    "s3://",
    "k",
    "T",
    "a",
];

impl NamePart {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Known(part) => KNOWN_PARTS[usize::from(*part) % KNOWN_PARTS.len()].into(),
            Self::Number(number) => number.to_string().into(),
            // No path of a host holds a NUL.
            Self::Bytes(bytes) => bytes.iter().copied().filter(|byte| *byte != 0).collect(),
        }
    }
}

/// A scheme that another crate brings.
#[derive(Debug)]
struct Drive;

impl Backend for Drive {
    fn scheme(&self) -> &'static str {
        "model:"
    }

    fn location(&self) -> Location {
        Location::NamedFile
    }

    fn knows(&self, name: &str) -> bool {
        name == "nvme"
    }

    fn name_is_missing(&self) -> String {
        "no such drive".to_owned()
    }

    fn comes_last(&self) -> &'static str {
        "a drive comes last"
    }

    fn options(&self) -> &'static str {
        "seed=N"
    }

    fn read(&self, _: &str, options: &mut UrlOptions<'_>) -> Result<Arc<dyn BackendUrl>, String> {
        options.number::<u64>("seed")?;
        Ok(Arc::new(Drive))
    }
}

impl BackendUrl for Drive {
    fn is_simulated(&self) -> bool {
        true
    }

    fn open(&self, path: &Path, _: &FileDeviceOptions) -> Result<Arc<dyn OpenBackend>, UrlError> {
        panic!("{}: names are read here, and nothing is opened", path.display())
    }
}

#[test]
fn image_url() {
    type Input = (Vec<NamePart>, Vec<u8>, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(parts, there, is_any_there)| {
            let mut schemes = Schemes::default();
            schemes.add(Arc::new(Drive));
            let text = parts.iter().flat_map(NamePart::bytes).collect::<Vec<u8>>();
            let text = OsStr::from_bytes(&text);
            // The host's file kind follows from the name's length.
            let stat_host = |path: &Path| match path.as_os_str().len() {
                length if there.contains(&(length as u8)) => HostFile::Device,
                length if *is_any_there && length % 3 == 0 => HostFile::Device,
                length if length % 7 == 0 => HostFile::Other,
                _ => HostFile::Nothing,
            };
            let is_part = |device: &DeviceUrl| {
                device.parts.iter().all(|part| {
                    let path = part.path.as_os_str().as_bytes();
                    text.as_bytes().windows(path.len().max(1)).any(|run| run == path)
                        || path.is_empty()
                })
            };
            if let Ok(device) = DeviceUrl::parse(text, &schemes, stat_host) {
                assert!(is_part(&device), "{device:?}");
                assert!(device.parts.iter().all(|part| part.partition != Some(0)));
            }
            match PathTarget::parse(text, &schemes, stat_host) {
                Ok(PathTarget::Inside { image, path }) => {
                    assert!(is_part(&image));
                    assert!(image.is_there(stat_host));
                    assert!(path.as_bytes().starts_with(b"/"));
                    assert!(text.as_bytes().ends_with(path.as_bytes()));
                }
                Ok(PathTarget::Host(path)) => assert_eq!(path.as_os_str(), text),
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
        if let Ok(slice) = partition::open(disk.clone(), partition.number) {
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
    let device = UndoDevice::open(disk, &path, FsOffset::default()).unwrap();
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
            let options = ApplyOptions { check, ..ApplyOptions::default() };
            let _ = apply(&damaged, &target, &options);
        },
    );
}

#[test]
fn lvm_metadata() {
    type Input = (Damage, Damage, Damage, bool, u16);
    let text = lvm_format::group(
        3,
        &(lvm_format::volume("data", &[(0, 2, 1), (0, 0, 2)])
            + &lvm_format::volume("other", &[(0, 5, 1)])),
    );
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(label_damage, header_damage, text_damage, is_mended, offset)| {
            let offset = 512 + u64::from(*offset) % (63 << 10);
            let text = text_damage.in_place(text.as_bytes());
            let mut label = label_damage.in_place(&lvm_format::label(lvm_format::IDS[0]));
            let mut header = header_damage.in_place(&lvm_format::header(&text, offset));
            if *is_mended {
                lvm_format::seal_label(&mut label);
                lvm_format::seal_header(&mut header);
            }
            let disk = MemoryDevice::new(2 << 20);
            lvm_format::write(&disk, &label, &header, &text, offset);
            let disk: [Arc<dyn Device>; 1] = [Arc::new(disk)];
            for name in [None, Some("data")] {
                match extant_storage::lvm::open(&disk, None, name, true) {
                    Ok(volume) if volume.size() > 0 => {
                        volume.read_at(volume.size() - 1, &mut [0]).unwrap();
                    }
                    Ok(_) => {}
                    Err(error) => assert!(!error.to_string().is_empty()),
                }
            }
        },
    );
}

#[test]
fn luks1_header_and_slots() {
    bolero::check!().with_type::<Damage>().with_test_time(FUZZ_TIME).for_each(|damage| {
        let mut header = damage.in_place(&luks_format::luks1_header());
        // The limits of iterations are tested elsewhere; here they would only take time.
        for at in [164].into_iter().chain((0..8).map(|slot| 212 + slot * 48)) {
            header[at..at + 4].copy_from_slice(&1_u32.to_be_bytes());
        }
        header.resize(8 << 10, 0x5a);
        let disk = Arc::new(MemoryDevice::from_bytes(&header));
        if let Err(error) = CryptDevice::luks(disk, b"key") {
            assert!(!error.to_string().is_empty());
        }
    });
}

const LUKS2_JSON: &str = r#"{"keyslots":{"0":{"type":"luks2","key_size":64,"af":{"type":"luks1","stripes":4,
"hash":"sha256"},"area":{"type":"raw","offset":"32768","size":"4096","encryption":"aes-xts-plain64","key_size":64},
"kdf":{"type":"argon2id","time":1,"memory":32,"cpus":1,"salt":"AAAAAAAAAAAAAAAAAAAAAA=="}},
"1":{"type":"luks2","key_size":32,"af":{"type":"luks1","stripes":2,"hash":"sha1"},"area":{"type":"raw",
"offset":"36864","size":"4096","encryption":"aes-cbc-essiv:sha256","key_size":32},
"kdf":{"type":"pbkdf2","hash":"sha512","iterations":2,"salt":"AAAA"}}},"tokens":{},
"segments":{"0":{"type":"crypt","offset":"40960","size":"dynamic","iv_tweak":"0","encryption":"aes-xts-plain64",
"sector_size":4096}},"digests":{"0":{"type":"pbkdf2","keyslots":["0","1"],"segments":["0"],"hash":"sha256",
"iterations":1,"salt":"AAAA","digest":"AAAA"}},"config":{"json_size":"12288","keyslots_size":"8192"}}"#;

#[test]
fn luks2_header_and_slots() {
    type Input = (Damage, Damage, bool);
    bolero::check!().with_type::<Input>().with_test_time(FUZZ_TIME).for_each(
        |(binary_damage, json_damage, is_second)| {
            let at = if *is_second { luks_format::COPY } else { 0 };
            let json = json_damage.in_place(LUKS2_JSON.as_bytes());
            let mut header = luks_format::luks2_copy(at, luks_format::COPY, 1, &json);
            let binary = binary_damage.in_place(&header[..512]);
            header[..512].copy_from_slice(&binary);
            let disk = Arc::new(MemoryDevice::new(64 << 10));
            luks_format::write_luks2(&disk, at, header);
            if let Err(error) = CryptDevice::luks(disk, b"key") {
                assert!(!error.to_string().is_empty());
            }
        },
    );
}
