//! Joined runs, and logical volumes: of our own making, and of LVM2's where it runs.

use std::sync::Arc;

use extant_device::{
    Device, FileDeviceOptions, LinearDevice, LinearPart, MemoryDevice, Operation, Request,
};
use extant_sim::{Effect, Fault, FaultyDevice};
use extant_storage::lvm;
use extant_testkit::{Scratch, is_root, skip, tool};

#[path = "common/lvm.rs"]
mod format;

const EXTENT: usize = 64 << 10;

fn memory(size: u64, fill: u8) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(size));
    device.write_at(0, &vec![fill; size as usize]).unwrap();
    device
}

fn part(device: &Arc<MemoryDevice>, offset: u64, size: u64) -> LinearPart {
    LinearPart { device: device.clone(), offset, size }
}

#[test]
fn requests_cross_from_one_part_to_the_next() {
    let (a, b) = (memory(4096, 1), memory(4096, 2));
    let parts = vec![part(&a, 1000, 1000), part(&b, 0, 0), part(&b, 96, 4000), part(&a, 0, 1000)];
    let device = LinearDevice::new(parts).unwrap();
    assert_eq!(device.size(), 6000);
    device.write_at(998, b"edge").unwrap();
    let mut batch_byte = [0; 1];
    let (mut across, mut last) = ([0; 6], [0; 2]);
    let mut batch = [
        Request::read(997, &mut across),
        Request::read(5998, &mut last),
        Request::flush(),
        Request::read(4999, &mut batch_byte),
    ];
    device.submit(&mut batch).unwrap();
    assert_eq!((&across, &last, batch_byte), (b"\x01edge\x02", &[1, 1], [2]));
    assert_eq!((&a.to_vec()[1998..2000], &b.to_vec()[96..98]), (&b"ed"[..], &b"ge"[..]));

    device.write_zeroes(4999..5001).unwrap();
    assert_eq!((b.to_vec()[4095], a.to_vec()[0], a.to_vec()[1]), (0, 0, 1));
    assert!(device.read_at(5999, &mut [0; 2]).is_err());
}

#[test]
fn one_device_gets_a_batch_whole_and_errors_count_from_the_start() {
    let faulty = Arc::new(FaultyDevice::new(memory(4096, 0)));
    faulty.inject(Fault::new(Effect::Error(std::io::ErrorKind::Other)).on(Operation::Write));
    let device: Arc<dyn Device> = faulty;
    let run = |offset| LinearPart { device: device.clone(), offset, size: 1024 };
    let linear = LinearDevice::new(vec![run(2048), run(0)]).unwrap();
    let mut batch = [Request::write(1500, b"x"), Request::read(0, &mut [])];
    let error = linear.submit(&mut batch).unwrap_err();
    assert_eq!((error.offset, batch[0].offset()), (1500, 1500));
    assert!(batch[1].status.is_done());
    let across = linear.write_at(1023, b"xy").unwrap_err();
    assert_eq!((across.offset, across.length), (1023, 2));
}

#[test]
fn data_is_looked_for_part_by_part() {
    let (a, b) = (Arc::new(MemoryDevice::new(1 << 20)), Arc::new(MemoryDevice::new(1 << 20)));
    b.write_at(64 << 10, &[1; 16 << 10]).unwrap();
    let device = LinearDevice::new(vec![part(&a, 0, 1 << 19), part(&b, 4096, 1 << 19)]).unwrap();
    let start = (1 << 19) + (60 << 10);
    assert_eq!(device.next_data(0..1 << 20).unwrap(), Some(start..start + (16 << 10)));
    assert_eq!(device.next_data(start + (16 << 10)..1 << 20).unwrap(), None);
}

#[test]
fn a_part_off_its_device_is_refused() {
    let a = memory(4096, 0);
    let error = LinearDevice::new(vec![part(&a, 4000, 97)]).unwrap_err();
    assert_eq!((error.start, error.size, error.whole), (4000, 97, 4096));
}

/// Two physical volumes with the same metadata.
fn disks(text: &str, offset: u64) -> Vec<Arc<dyn Device>> {
    let disk = |index: usize| -> Arc<dyn Device> {
        let disk = memory(2 << 20, index as u8);
        let (label, header) =
            (format::label(format::IDS[index]), format::header(text.as_bytes(), offset));
        format::write(&disk, &label, &header, text.as_bytes(), offset);
        disk
    };
    vec![disk(0), disk(1)]
}

fn open(
    devices: &[Arc<dyn Device>],
    volume: Option<&str>,
    write: bool,
) -> Result<LinearDevice, String> {
    lvm::open(devices, Some("vg0"), volume, write).map_err(|error| error.to_string())
}

#[test]
fn a_linear_volume_is_read_from_two_devices() {
    let text = format::group(3, &format::volume("data", &[(1, 2, 1), (0, 0, 2)]));
    // Also where the text wraps around the area's end.
    for offset in [512, (64 << 10) - 100] {
        let devices = disks(&text, offset);
        let volume = open(&devices, None, true).unwrap();
        assert_eq!(volume.size(), 3 * EXTENT as u64);
        volume.write_at(EXTENT as u64 - 1, b"xy").unwrap();
        let byte = |device: &Arc<dyn Device>, at: usize| {
            let mut byte = [0];
            device.read_at(at as u64, &mut byte).unwrap();
            byte[0]
        };
        assert_eq!(byte(&devices[1], (1 << 20) + 3 * EXTENT - 1), b'x');
        assert_eq!(byte(&devices[0], 1 << 20), b'y');
    }
}

#[test]
fn what_is_not_linear_or_not_there_is_named() {
    let linear = format::volume("data", &[(0, 0, 1)]);
    let refused = |volumes: &str, name: Option<&str>| {
        open(&disks(&format::group(1, volumes), 512), name, true).unwrap_err()
    };
    assert_eq!(
        refused(&linear.replace("\"striped\"", "\"raid1\""), None),
        "not supported: logical volume \"data\": segment of type \"raid1\""
    );
    assert_eq!(
        refused(&linear.replace("stripe_count = 1", "stripe_count = 2"), None),
        "not supported: logical volume \"data\": 2 stripes"
    );
    assert_eq!(refused(&linear, Some("root")), "no logical volume \"root\": there is data");
    let two = linear.clone() + &format::volume("other", &[(0, 1, 1)]);
    assert_eq!(refused(&two, None), "several logical volumes: give lv=NAME, one of data, other");
    let read_only = linear.replace("\"WRITE\", ", "");
    assert_eq!(
        refused(&read_only, None),
        "logical volume \"data\" is not written: its metadata says that it is only read"
    );
    let snapshot = "snap { status = [\"READ\"] segment_count = 1 segment1 { type = \"snapshot\" origin = \"data\" cow_store = \"c\" } }\n";
    assert_eq!(
        refused(&(linear.clone() + snapshot), None),
        "logical volume \"data\" is not written: \"snap\" is a snapshot of it"
    );
    assert_eq!(
        refused(&format::volume("data", &[(0, 17, 1)]), None),
        "logical volume \"data\": a slice of 65536 bytes at byte 2162688 extends past the end of the device (2097152 bytes)"
    );
    assert_eq!(
        refused(&linear.replace("start_extent = 0", "start_extent = 1"), None),
        "logical volume \"data\": a segment begins at extent 1, not at 0"
    );
    let lost = disks(&format::group(1, &format::volume("data", &[(1, 0, 1)])), 512);
    assert_eq!(
        open(&lost[..1], None, false).unwrap_err(),
        format!(
            "logical volume \"data\" needs the physical volume {} (/dev/sd1), which was not given",
            format::IDS[1]
        )
    );
    assert_eq!(
        open(&[memory(1 << 20, 0)], None, false).unwrap_err(),
        "no LVM2 physical volume: no label in the first 4 sectors"
    );
}

#[test]
fn the_newest_sound_metadata_is_read() {
    let (old, new) = (
        format::group(4, &format::volume("data", &[(0, 0, 1)])),
        format::group(5, &format::volume("data", &[(0, 0, 2)])),
    );
    let devices = vec![disks(&old, 512).swap_remove(0), disks(&new, 512).swap_remove(1)];
    assert_eq!(open(&devices, None, false).unwrap().size(), 2 * EXTENT as u64);
    devices[1].write_at(4096 + 600, b"damage").unwrap();
    assert_eq!(open(&devices, None, false).unwrap().size(), EXTENT as u64);
    devices[0].write_at(4096 + 600, b"damage").unwrap();
    assert_eq!(
        open(&devices, None, false).unwrap_err(),
        "LVM2 metadata area at byte 4096: text checksum does not match"
    );
}

#[test]
fn segments_that_lie_on_each_other_or_on_metadata_are_refused() {
    let refused = |text: &str| open(&disks(text, 512), None, false).unwrap_err();
    let twice = format::group(1, &format::volume("data", &[(0, 3, 2), (1, 0, 1), (0, 4, 1)]));
    assert_eq!(refused(&twice), "logical volume \"data\": two segments use the same extents");
    let at_home = format::group(1, &format::volume("data", &[(0, 0, 1)]));
    for start in ["pe_start = 0", "pe_start = 8", "pe_start = 135"] {
        assert_eq!(
            refused(&at_home.replace("pe_start = 2048", start)),
            "logical volume \"data\": a segment overlaps LVM2's metadata"
        );
    }
    let shifted = at_home.replace("pe_start = 2048", "pe_start = 136");
    assert_eq!(open(&disks(&shifted, 512), None, true).unwrap().size(), EXTENT as u64);
}

#[test]
fn what_may_be_two_things_is_not_guessed() {
    let text = format::group(1, &format::volume("data", &[(0, 0, 1)]));
    let devices = disks(&text, 512);
    let copy = disks(&text, 512).swap_remove(0);
    assert_eq!(
        open(&[devices[0].clone(), copy], None, false).unwrap_err(),
        "LVM2 label: found on two devices: one is a copy of the other"
    );
    let twice = [devices[0].clone(), devices[0].clone()];
    assert_eq!(open(&twice, None, false).unwrap().size(), EXTENT as u64);
    // Another machine's group of the same name.
    let other = disks(&text.replace("id = \"x\"", "id = \"y\""), 512).swap_remove(1);
    assert_eq!(
        open(&[devices[0].clone(), other], None, false).unwrap_err(),
        "not supported: two volume groups that are both called \"vg0\""
    );
}

/// Takes the loop devices down again.
struct Loops(Vec<String>);

impl Drop for Loops {
    fn drop(&mut self) {
        for device in &self.0 {
            let _ = std::process::Command::new("losetup").args(["-d", device]).status();
        }
    }
}

/// LVM2 itself makes a group on loop devices, without device-mapper.
#[test]
fn volumes_of_lvm2_are_read() {
    let (Some(lvm), Some(losetup)) = (tool("lvm"), tool("losetup")) else {
        skip!("lvm or losetup is missing")
    };
    if !is_root() {
        skip!("loop devices need root");
    }
    let scratch = Scratch::new();
    let mut loops = Loops(Vec::new());
    let mut files = Vec::new();
    for name in ["one", "two"] {
        let path = scratch.join(name);
        std::fs::File::create(&path).unwrap().set_len(20 << 20).unwrap();
        match losetup.text(["-f", "--show", path.to_str().unwrap()]) {
            Ok(device) => loops.0.push(device.trim().to_owned()),
            Err(why) => skip!("no loop device: {why}"),
        }
        files.push(path);
    }
    const CONFIG: &str = "devices{use_devicesfile=0 scan_lvs=0} global{use_lvmpolld=0} \
                          activation{udev_sync=0 udev_rules=0 monitoring=0}";
    let run = |words: &[&str]| {
        let settings = ["--driverloaded", "n", "--config", CONFIG];
        lvm.text([&words[..1], &settings, &words[1..]].concat()).map(|_| ())
    };
    let group = format!("extanttest{}", std::process::id());
    let (one, two) = (&*loops.0[0], &*loops.0[1]);
    let inactive = ["-an", "-Zn", "-Wn"];
    let made = run(&["pvcreate", one, two])
        .and_then(|()| run(&["vgcreate", "-s", "1M", &group, one, two]))
        .and_then(|()| {
            run(&[&["lvcreate"], &inactive[..], &["-L", "12M", "-n", "data", &group]].concat())
        })
        .and_then(|()| {
            run(&[&["lvcreate"], &inactive[..], &["-L", "2M", "-n", "other", &group]].concat())
        })
        .and_then(|()| run(&["lvextend", "-L", "20M", &format!("{group}/data")]));
    if let Err(why) = made {
        skip!("LVM2 does not run here: {why}");
    }
    drop(loops);
    let devices: Vec<Arc<dyn Device>> = files
        .iter()
        .map(|path| {
            Arc::new(FileDeviceOptions::new().write(true).open(path).unwrap()) as Arc<dyn Device>
        })
        .collect();
    let data = lvm::open(&devices, Some(&group), Some("data"), true).unwrap();
    let other = lvm::open(&devices, None, Some("other"), true).unwrap();
    assert_eq!((data.size(), other.size()), (20 << 20, 2 << 20));
    data.write_at(0, &vec![7; 20 << 20]).unwrap();
    other.write_at(0, &vec![8; 2 << 20]).unwrap();
    // Neither the volumes nor the metadata lie on each other.
    let again = lvm::open(&devices, Some(&group), Some("data"), false).unwrap();
    let mut bytes = vec![0; 20 << 20];
    again.read_at(0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 7));
}
