use super::*;
use crate::memory::MemoryDevice;

/// No superblock of ext: blocks of 1,024 bytes.
fn sample() -> Vec<u8> {
    (0..200_000_u32).map(|at| (at / 7 % 251) as u8).collect()
}

struct Setup {
    _directory: tempfile::TempDir,
    path: PathBuf,
    memory: Arc<MemoryDevice>,
}

fn setup() -> Setup {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("undo");
    Setup { path, _directory: directory, memory: Arc::new(MemoryDevice::from_bytes(&sample())) }
}

fn keep(memory: &Arc<MemoryDevice>, path: &Path) -> Result<UndoDevice, UndoError> {
    UndoDevice::open(memory.clone(), path, FsOffset::default())
}

fn change(device: &dyn Device) {
    device.write_at(0, &[1; 4096]).unwrap();
    device.write_at(100, &[2; 10]).unwrap();
    device.write_zeroes(60_000..70_000).unwrap();
    device.write_at(199_990, &[3; 10]).unwrap();
}

fn same(path: &Path, device: &dyn Device) -> Result<Applied, UndoError> {
    apply(path, device, &ApplyOptions::default())
}

fn forced(path: &Path, device: &dyn Device) -> Result<Applied, UndoError> {
    apply(path, device, &ApplyOptions { check: Check::SizeOnly, ..ApplyOptions::default() })
}

#[test]
fn what_was_overwritten_comes_back() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    change(&device);
    assert_ne!(memory.to_vec(), sample());
    device.finish().unwrap();
    let applied = same(path, &**memory).unwrap();
    assert_eq!(memory.to_vec(), sample());
    // Unit 0, units 1 and 2, and the last.
    let lengths: Vec<_> = applied.restored.iter().map(|restored| restored.length).collect();
    assert_eq!((lengths, applied.is_finished), (vec![32_768, 65_536, 200_000 - 196_608], true));
    // Once more changes nothing.
    same(path, &**memory).unwrap();
    assert_eq!(memory.to_vec(), sample());
    // As e2undo it is refused.
    let exact = ApplyOptions { check: Check::Exact, ..ApplyOptions::default() };
    let refused = apply(path, &**memory, &exact);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
}

#[test]
fn a_dry_run_writes_nothing() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    change(&device);
    device.finish().unwrap();
    let changed = memory.to_vec();
    apply(path, &**memory, &ApplyOptions { dry_run: true, ..ApplyOptions::default() }).unwrap();
    assert_eq!(memory.to_vec(), changed);
}

/// The state before the first command comes back; the later ones add what they touch.
#[test]
fn a_file_of_the_same_volume_is_continued() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    device.write_at(0, &[1; 4096]).unwrap();
    device.finish().unwrap();
    let device = keep(memory, path).unwrap();
    change(&device);
    device.finish().unwrap();
    // One that was cut off, too.
    let device = keep(memory, path).unwrap();
    device.write_at(150_000, &[9]).unwrap();
    drop(device);
    let device = keep(memory, path).unwrap();
    device.write_at(100_000, &[9]).unwrap();
    device.finish().unwrap();
    same(path, &**memory).unwrap();
    assert_eq!(memory.to_vec(), sample());
}

#[test]
fn a_file_of_another_volume_is_left_alone() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    change(&device);
    device.finish().unwrap();
    let kept = std::fs::read(path).unwrap();
    memory.write_at(1500, &[9]).unwrap();
    let refused = keep(memory, path);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
    let other = FsOffset { on_device: 0, in_file: 4096 };
    let refused = UndoDevice::open(memory.clone(), path, other);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
    assert_eq!(std::fs::read(path).unwrap(), kept);
    std::fs::write(path, b"a letter").unwrap();
    let refused = keep(memory, path);
    assert!(matches!(refused, Err(UndoError::NotUndo { .. })), "{refused:?}");
    assert_eq!(std::fs::read(path).unwrap(), b"a letter");
}

/// More keys than a key block has: 63 of 1,024 bytes.
#[test]
fn many_pieces_fill_several_key_blocks() {
    let Setup { path, .. } = &setup();
    let before: Vec<u8> = (0..10_000_000_u32).map(|at| (at / 1000 % 255) as u8 + 1).collect();
    let memory = Arc::new(MemoryDevice::from_bytes(&before));
    let pieces = 140;
    let device = keep(&memory, path).unwrap();
    for piece in (0..pieces).rev() {
        device.write_at(piece * 65_536 + 5, &[0; 3]).unwrap();
    }
    device.finish().unwrap();
    let applied = same(path, &*memory).unwrap();
    assert_eq!(applied.restored.len(), pieces as usize);
    assert!(memory.to_vec() == before);
}

/// Zeroes are holes of the undo file, and come back as such.
#[test]
fn zeroes_take_no_room() {
    use std::os::unix::fs::MetadataExt;
    let Setup { path, .. } = &setup();
    let memory = Arc::new(MemoryDevice::new(1 << 26));
    let device = keep(&memory, path).unwrap();
    device.write_at(0, &vec![7; 1 << 24]).unwrap();
    device.finish().unwrap();
    let used = std::fs::metadata(path).unwrap();
    assert!(used.len() > 1 << 24 && used.blocks() * 512 < 1 << 20, "{used:?}");
    same(path, &*memory).unwrap();
    assert!(memory.to_vec().iter().all(|byte| *byte == 0));
}

#[test]
fn a_volume_within_a_device_has_its_own_blocks() {
    let Setup { path, memory, .. } = &setup();
    let start = 100_352;
    let device =
        UndoDevice::open(memory.clone(), path, FsOffset { on_device: start, in_file: start + 512 });
    let device = device.unwrap();
    device.write_at(start + 5000, &[1; 300]).unwrap();
    let refused = device.write_at(start - 1, &[1]);
    assert!(refused.unwrap_err().to_string().contains("in front of the volume"));
    device.finish().unwrap();
    // The device itself begins 512 bytes after its file.
    let options = ApplyOptions { device_start: 512, ..ApplyOptions::default() };
    let applied = apply(path, &**memory, &options).unwrap();
    assert_eq!((applied.restored[0].block, memory.to_vec()), (0, sample()));
}

#[test]
fn an_image_changed_since_is_refused() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    change(&device);
    device.finish().unwrap();
    memory.write_at(1500, &[9]).unwrap();
    let refused = same(path, &**memory);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
    forced(path, &**memory).unwrap();
    assert_eq!(memory.to_vec(), sample());
}

#[test]
fn a_smaller_device_is_refused_even_by_force() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    change(&device);
    let other = MemoryDevice::from_bytes(&sample()[..199_999]);
    let refused = forced(path, &other);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
}

/// The file may end anywhere: what is missing of it was not overwritten yet. The order in which
/// the system writes the blocks of one sync is any.
#[test]
fn a_file_cut_off_anywhere_puts_back_what_was_overwritten() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    device.write_at(0, &[1; 100]).unwrap();
    let before = std::fs::read(path).unwrap();
    device.write_at(40_000, &[2; 100]).unwrap();
    let after = std::fs::read(path).unwrap();
    let sector = |file: &[u8], number: usize| {
        let mut bytes = file.get(number * 512..).unwrap_or_default().to_vec();
        bytes.resize(512, 0);
        bytes
    };
    let changed: Vec<usize> = (0..after.len() / 512)
        .filter(|number| sector(&before, *number) != sector(&after, *number))
        .collect();
    // The header, the key block (both halves are one sector of keys), and the data.
    assert!(changed.len() > 32 && changed[0] == 0, "{changed:?}");
    let (head, data) = changed.split_at(2);
    for written in 0..8_usize {
        let mut torn = before.clone();
        torn.resize(after.len(), 0);
        let of_head = head.iter().enumerate().filter(|(bit, _)| written & 1 << bit != 0);
        let of_data =
            data.iter().skip(usize::from(written & 4 == 0)).step_by(1 + (written & 4) / 4);
        for number in of_head.map(|(_, number)| number).chain(of_data) {
            torn[number * 512..][..512].copy_from_slice(&sector(&after, *number));
        }
        std::fs::write(path, &torn).unwrap();
        let image = MemoryDevice::from_bytes(&sample());
        image.write_at(0, &[1; 100]).unwrap();
        let applied = same(path, &image).unwrap();
        assert!(!applied.is_finished && !applied.restored.is_empty(), "written {written:b}");
        assert_eq!(image.to_vec(), sample(), "written {written:b}");
    }
}

/// Of what is written between two syncs any part may be on the medium, and the file may be as long
/// as before: where one key block is full, too.
#[test]
fn a_power_loss_between_any_two_syncs_loses_nothing_that_was_overwritten() {
    let Setup { path, .. } = &setup();
    let before: Vec<u8> = (0..10_000_000_u32).map(|at| (at / 1000 % 255) as u8 + 1).collect();
    let memory = Arc::new(MemoryDevice::from_bytes(&before));
    let device = keep(&memory, path).unwrap();
    let mut states = vec![(std::fs::read(path).unwrap(), before.clone())];
    for first in (0..128).step_by(4) {
        let data = [9; 3];
        let write = |piece: u64| Request::write(piece * 65_536 + 5, &data);
        device.submit(&mut [first, first + 1, first + 2, first + 3].map(write)).unwrap();
        // A sync between is followed by no write to the device.
        let mut synced = std::mem::take(&mut device.writer.lock().synced);
        let last = synced.pop().unwrap();
        let unchanged = states.last().unwrap().1.clone();
        states.extend(synced.into_iter().map(|file| (file, unchanged.clone())));
        states.push((last, memory.to_vec()));
    }
    let mut random = 7_u64;
    for pair in states.windows(2) {
        let [(old, device), (new, _)] = pair else { unreachable!("a window of two") };
        for round in 0..12 {
            let mut torn = old.clone();
            let is_longer = round % 3 > 0;
            if is_longer {
                torn.resize(new.len(), 0);
            }
            for at in (0..torn.len().min(new.len())).step_by(512) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // The header comes first in most rounds, which is the worst order.
                if random >> 63 == 1 || at == 0 && round > 2 {
                    let end = (at + 512).min(torn.len());
                    torn[at..end].copy_from_slice(&new[at..end]);
                }
            }
            std::fs::write(path, &torn).unwrap();
            let image = MemoryDevice::from_bytes(device);
            let applied = forced(path, &image);
            assert!(applied.is_ok(), "{} to {} bytes: {applied:?}", old.len(), new.len());
            assert!(image.to_vec() == before, "{} to {} bytes", old.len(), new.len());
        }
    }
}

#[test]
fn broken_data_in_the_middle_are_refused_before_anything_is_written() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    change(&device);
    device.finish().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[3 * 1024 + 1000] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    let changed = memory.to_vec();
    let refused = same(path, &**memory);
    assert!(matches!(refused, Err(UndoError::Broken { .. })), "{refused:?}");
    assert_eq!(memory.to_vec(), changed);
}

/// The overwrite is passed on only after its old bytes are in the file.
#[test]
fn nothing_is_overwritten_that_could_not_be_kept() {
    let Setup { path, memory, .. } = &setup();
    let device = keep(memory, path).unwrap();
    let mut file = std::fs::OpenOptions::new().read(true).open(path).unwrap();
    std::mem::swap(&mut *device.writer.lock().file_mut(), &mut file);
    device.write_at(0, &[1; 100]).unwrap_err();
    assert_eq!(memory.to_vec(), sample());
}

#[test]
fn any_bytes_are_taken_or_refused() {
    let Setup { path, memory, .. } = &setup();
    for length in [0, 1, 16, 4095, 4096, 5000] {
        std::fs::write(path, vec![0x41; length]).unwrap();
        assert!(forced(path, &**memory).is_err());
    }
}

#[test]
fn an_automatic_name_needs_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let image = OsStr::new("/images/disk.img");
    let named = |directory: &OsStr, is_compat| {
        let path = OsStr::new("");
        let directory = Some(directory);
        UndoRequest { path, directory, image, program: "tune2fs", is_compat }.path().unwrap()
    };
    let there = directory.path().join("tune2fs-disk.img.e2undo");
    std::fs::write(&there, b"older").unwrap();
    assert_eq!(named(directory.path().as_os_str(), false).as_deref(), Some(&*there));
    assert!(there.exists());
    assert_eq!(named(directory.path().as_os_str(), true).as_deref(), Some(&*there));
    assert!(!there.exists(), "begun again");
    let missing = directory.path().join("missing");
    assert_eq!(named(missing.as_os_str(), true), None);
    assert_eq!(named(missing.as_os_str(), false), Some(missing.join("tune2fs-disk.img.e2undo")));
    assert_eq!(named(OsStr::new("none"), false), None);
}
