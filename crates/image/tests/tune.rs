//! Tune, and a power cut or a failure of the device while its changes are written.

use std::sync::Arc;

use extant_device::{Device, MemoryDevice};
use extant_image::mkfs::Prompt;
use extant_image::tune::{self, Request, TuneError};
use extant_ondisk::GroupNo;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, State};
use extant_runtime::env::Env;
use extant_sim::{Effect, Fault, FaultyDevice, Recorder, Sweep};
use extant_testkit::{TempImage, skip};

const SIZE: usize = 8 << 20;
/// Seconds since 1970.
const NOW: u64 = 1_700_000_000;

struct Silent;

impl Prompt for Silent {
    fn say(&mut self, _: &str) {}
    fn warn(&mut self, _: &str) {}
    fn confirm(&mut self, _: &str) -> bool {
        false
    }
}

fn tuned(device: &Arc<dyn Device>, features: &str) -> Result<(), TuneError> {
    let request = Request { features: Some(features.into()), ..Request::default() };
    tune::run(device, None, &Env::threads(), &request, NOW, &mut Silent)
}

fn bytes_of(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    device.read_at(0, &mut bytes).unwrap();
    bytes
}

fn is_clean(bytes: &[u8]) -> bool {
    let at = SUPERBLOCK_OFFSET as usize;
    let raw = RawSuperblock::from_bytes(&bytes[at..at + 1024], GroupNo(0)).unwrap();
    raw.verify(GroupNo(0)).unwrap();
    State::from_bits_retain(raw.s_state.get()).contains(State::CLEAN)
}

const CHANGES: [&str; 5] =
    ["^metadata_csum", "metadata_csum_seed,quota", "^has_journal", "mmp", "quota"];

fn volume() -> Result<Vec<u8>, String> {
    let image = TempImage::by_mke2fs(SIZE as u64, &["-t", "ext4", "-b", "1024"])?;
    std::fs::read(image.path()).map_err(|error| error.to_string())
}

/// After a power cut the volume is as it was, or it has all changes, or it says that a check is
/// due.
#[test]
fn a_volume_changed_in_part_is_not_clean() {
    let before = match volume() {
        Ok(before) => before,
        Err(why) => skip!("{why}"),
    };
    for change in CHANGES {
        let base = Arc::new(MemoryDevice::from_bytes(&before));
        let recorder = Arc::new(Recorder::new(base));
        let device: Arc<dyn Device> = recorder.clone();
        tuned(&device, change).unwrap();
        let after = bytes_of(&*device);
        assert!(is_clean(&before) && is_clean(&after) && before != after, "{change}");
        let sweep = Sweep { prefixes: 12, torn: 0, ..Sweep::seeded(1) };
        let mut in_part = 0;
        for cut in recorder.cuts(sweep) {
            let bytes = bytes_of(&cut.image);
            if is_clean(&bytes) {
                assert!(bytes == before || bytes == after, "{change}: {cut}");
            } else {
                in_part += 1;
            }
        }
        assert!(in_part > 2, "{change}: {in_part} of the cuts hit it");
    }
}

/// A write that fails leaves a volume that says that a check is due; one that cannot be read while
/// the change is prepared leaves it as it was.
#[test]
fn a_failed_write_leaves_a_volume_that_is_not_clean() {
    let before = match volume() {
        Ok(before) => before,
        Err(why) => skip!("{why}"),
    };
    for change in CHANGES {
        for passes in [0, 1, 2, 5] {
            let base = Arc::new(MemoryDevice::from_bytes(&before));
            let faulty = Arc::new(FaultyDevice::new(base.clone()));
            let device: Arc<dyn Device> = faulty.clone();
            let fault = Fault::new(Effect::Error(std::io::ErrorKind::Other))
                .on(extant_device::Operation::Write);
            faulty.inject(fault.after(passes));
            let outcome = tuned(&device, change);
            if faulty.faults_met() == 0 {
                assert!(outcome.is_ok() && passes > 2, "{change}: {passes}: {outcome:?}");
                continue;
            }
            let error = outcome.unwrap_err();
            assert!(matches!(error, TuneError::Device(_)), "{change}: {error}");
            let bytes = bytes_of(&*base);
            assert_eq!(bytes == before, passes == 0, "{change}: {passes}");
            assert!(bytes == before || !is_clean(&bytes), "{change}: {passes}");
        }
    }
}
