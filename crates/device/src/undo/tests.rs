use super::*;
use crate::memory::MemoryDevice;

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

fn change(device: &dyn Device) {
    device.write_at(0, &[1; 4096]).unwrap();
    device.write_at(100, &[2; 10]).unwrap();
    device.write_zeroes(60_000..70_000).unwrap();
    device.write_at(199_990, &[3; 10]).unwrap();
}

#[test]
fn what_was_overwritten_comes_back() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
    change(&device);
    assert_ne!(memory.to_vec(), sample());
    device.finish().unwrap();
    let applied = apply(path, &**memory, Check::Same, false).unwrap();
    assert_eq!(memory.to_vec(), sample());
    // Units 0, 1, 2 and the last.
    assert_eq!((applied.records, applied.is_finished), (4, true));
    // Once more changes nothing.
    apply(path, &**memory, Check::Same, false).unwrap();
    assert_eq!(memory.to_vec(), sample());
}

#[test]
fn a_dry_run_writes_nothing() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
    change(&device);
    device.finish().unwrap();
    let changed = memory.to_vec();
    apply(path, &**memory, Check::Same, true).unwrap();
    assert_eq!(memory.to_vec(), changed);
}

#[test]
fn an_image_changed_since_is_refused() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
    change(&device);
    device.finish().unwrap();
    memory.write_at(1500, &[9]).unwrap();
    let refused = apply(path, &**memory, Check::Same, false);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
    apply(path, &**memory, Check::SizeOnly, false).unwrap();
    assert_eq!(memory.to_vec(), sample());
}

#[test]
fn another_size_is_refused_even_by_force() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
    change(&device);
    let other = MemoryDevice::from_bytes(&sample()[..199_999]);
    let refused = apply(path, &other, Check::SizeOnly, false);
    assert!(matches!(refused, Err(UndoError::OtherImage { .. })), "{refused:?}");
}

/// The file may end anywhere in a record: its unit was not overwritten yet.
#[test]
fn a_file_cut_off_anywhere_puts_back_what_it_has() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
    device.write_at(0, &[1; 100]).unwrap();
    let one = std::fs::metadata(path).unwrap().len();
    device.write_at(40_000, &[2; 100]).unwrap();
    let whole = std::fs::read(path).unwrap();
    for cut in [one, one + 1, one + 31, one + 32, one + 500, whole.len() as u64 - 1] {
        std::fs::write(path, &whole[..cut as usize]).unwrap();
        let image = MemoryDevice::from_bytes(&sample());
        image.write_at(0, &[1; 100]).unwrap();
        let applied = apply(path, &image, Check::Same, false).unwrap();
        assert_eq!((applied.records, applied.is_finished), (1, false), "cut at {cut}");
        assert_eq!(image.to_vec(), sample());
    }
}

#[test]
fn a_broken_record_in_the_middle_is_refused_before_anything_is_written() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
    change(&device);
    device.finish().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    bytes[format::HEADER_LEN + 1000] ^= 1;
    std::fs::write(path, &bytes).unwrap();
    let changed = memory.to_vec();
    let refused = apply(path, &**memory, Check::Same, false);
    assert!(matches!(refused, Err(UndoError::Broken { .. })), "{refused:?}");
    assert_eq!(memory.to_vec(), changed);
}

/// The overwrite is passed on only after its old bytes are in the file.
#[test]
fn nothing_is_overwritten_that_could_not_be_kept() {
    let Setup { path, memory, .. } = &setup();
    let device = UndoDevice::create(memory.clone(), path).unwrap();
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
        assert!(apply(path, &**memory, Check::SizeOnly, false).is_err());
    }
}
