//! The recorder builds the power cuts of its fault model, and no others.

use std::collections::BTreeSet;
use std::sync::Arc;

use extant_device::{Device, MemoryDevice, Request};
use extant_sim::{Event, Recorder, Survivors, Sweep};

fn recorder(size: u64) -> (Arc<MemoryDevice>, Recorder) {
    let base = Arc::new(MemoryDevice::new(size));
    (base.clone(), Recorder::new(base))
}

fn bytes(device: &dyn Device) -> Vec<u8> {
    let mut bytes = vec![0xaa; device.size() as usize];
    device.read_at(0, &mut bytes).expect("a read of the whole device");
    bytes
}

#[test]
fn the_log_has_what_changed_in_order() {
    let (base, recorder) = recorder(4096);
    recorder
        .submit(&mut [Request::write(5, b"ab"), Request::flush(), Request::discard(0..512)])
        .expect("it fits");
    recorder.mark(7);
    recorder.write_zeroes(512..1024).expect("it fits");
    recorder.read_at(0, &mut [0; 4]).expect("it fits");
    let mut sector = [0; 512];
    sector[5..7].copy_from_slice(b"ab");
    let expected = [
        Event::Write { offset: 0, data: Arc::from(sector) },
        Event::Flush,
        Event::Discard(0..512),
        Event::Mark(7),
        Event::WriteZeroes(512..1024),
    ];
    assert_eq!(recorder.events(), expected);
    assert_eq!(base.to_vec(), [0; 4096], "the base is never written");
}

/// Two unflushed writes: neither, either or both survive; a flushed one always does.
#[test]
fn any_subset_of_unflushed_writes_survives() {
    let (_, recorder) = recorder(4096);
    recorder.write_at(0, b"F").expect("it fits");
    recorder.flush().expect("flushed");
    recorder.write_at(512, b"a").expect("it fits");
    recorder.write_at(1024, b"b").expect("it fits");
    let sweep = Sweep { subsets: 64, ..Sweep::seeded(1) };
    let mut seen = BTreeSet::new();
    for cut in recorder.cuts(sweep).filter(|cut| cut.events >= 2) {
        let bytes = bytes(&cut.image);
        assert_eq!(bytes[0], b'F', "{cut}");
        seen.insert((bytes[512], bytes[1024]));
    }
    assert_eq!(seen, BTreeSet::from([(0, 0), (b'a', 0), (0, b'b'), (b'a', b'b')]));
}

#[test]
fn nothing_survives_that_was_not_written() {
    let (_, recorder) = recorder(1 << 16);
    for at in 0..16_u8 {
        recorder.write_at(u64::from(at) * 2048, &[at + 1; 2048]).expect("it fits");
        if at % 5 == 4 {
            recorder.flush().expect("flushed");
        }
    }
    let mut cuts = 0;
    for cut in recorder.cuts(Sweep::seeded(3)) {
        cuts += 1;
        for (sector, bytes) in bytes(&cut.image).chunks(512).enumerate() {
            let written = (sector / 4 + 1) as u8;
            let allowed = if sector < 64 { [0, written] } else { [0, 0] };
            let first = bytes[0];
            assert!(
                allowed.contains(&first) && bytes.iter().all(|byte| *byte == first),
                "{cut}: sector {sector}"
            );
        }
    }
    // Four stretches: nothing, 16 prefixes in all, 3 with several writes, 4 that can tear.
    assert_eq!(cuts, 4 + 16 + 3 * 4 + 4 * 2);
}

#[test]
fn torn_writes_are_torn_at_sectors_only() {
    let base = Arc::new(MemoryDevice::with_sectors(1 << 16, 4096));
    let recorder = Recorder::new(base);
    recorder.write_at(0, &[1; 1 << 15]).expect("it fits");
    let sweep = Sweep { torn: 40, ..Sweep::seeded(9) };
    let mut torn = 0;
    for cut in recorder.cuts(sweep) {
        let bytes = bytes(&cut.image);
        let sectors: Vec<u8> = bytes.chunks(4096).map(|sector| sector[0]).collect();
        assert!(
            bytes.chunks(4096).all(|sector| sector.iter().all(|byte| *byte == sector[0])),
            "{cut}"
        );
        torn += usize::from(sectors[..8].contains(&0) && sectors[..8].contains(&1));
    }
    assert!(torn > 5, "{torn}");
}

#[test]
fn of_two_writes_of_one_sector_the_later_survivor_wins() {
    let (_, recorder) = recorder(512);
    recorder.write_at(0, &[1; 512]).expect("it fits");
    recorder.write_at(0, &[2; 512]).expect("it fits");
    let seen: BTreeSet<u8> = recorder
        .cuts(Sweep { subsets: 64, ..Sweep::seeded(0) })
        .map(|cut| bytes(&cut.image)[0])
        .collect();
    assert_eq!(seen, BTreeSet::from([0, 1, 2]));
    assert_eq!(bytes(&recorder.image(2, Survivors::All))[0], 2);
}

#[test]
fn a_discard_may_survive_or_not() {
    let base = Arc::new(MemoryDevice::from_bytes(&[9; 4096]));
    let recorder = Recorder::new(base);
    recorder.discard(0..4096).expect("it fits");
    let seen: BTreeSet<u8> =
        recorder.cuts(Sweep::seeded(0)).map(|cut| bytes(&cut.image)[0]).collect();
    assert_eq!(seen, BTreeSet::from([0, 9]));
}

/// The data of a mark that was acknowledged after a flush are in every image that has the mark.
#[test]
fn marks_tell_what_was_acknowledged() {
    let (_, recorder) = recorder(1 << 16);
    for number in 1..=20_u64 {
        recorder.write_at(number * 512, &[number as u8; 512]).expect("it fits");
        recorder.flush().expect("flushed");
        recorder.mark(number);
        recorder.write_at(number * 512 + (1 << 15), b"unflushed").expect("it fits");
    }
    let mut last = 0;
    for cut in recorder.cuts(Sweep::seeded(5)) {
        let bytes = bytes(&cut.image);
        for mark in &cut.marks {
            assert_eq!(bytes[*mark as usize * 512], *mark as u8, "{cut}");
        }
        last = last.max(cut.marks.len());
    }
    assert_eq!(last, 20);
}

#[test]
fn a_sweep_repeats_itself_and_an_image_is_built_again() {
    let (_, recorder) = recorder(1 << 16);
    for at in 0..40_u8 {
        recorder.write_at(u64::from(at) * 700, &[at; 1500]).expect("it fits");
        if at % 7 == 6 {
            recorder.flush().expect("flushed");
        }
    }
    let again = recorder.cuts(Sweep::seeded(11));
    for (one, other) in recorder.cuts(Sweep::seeded(11)).zip(again) {
        assert_eq!((one.events, one.survivors), (other.events, other.survivors));
        assert!(bytes(&one.image) == bytes(&other.image), "{one}");
        assert!(bytes(&one.image) == bytes(&recorder.image(one.events, one.survivors)), "{one}");
    }
}

#[test]
fn long_stretches_have_as_many_prefixes_as_asked() {
    let (_, recorder) = recorder(1 << 16);
    for at in 0..100 {
        recorder.write_at(at, b"x").expect("it fits");
    }
    let sweep = Sweep { seed: 0, prefixes: 10, subsets: 0, torn: 0 };
    let prefixes: Vec<usize> = recorder.cuts(sweep).map(|cut| cut.events).collect();
    assert_eq!(prefixes, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
}

/// Two disks: what one has flushed says nothing of the other.
#[test]
fn a_flush_of_a_part_makes_that_part_sure() {
    let (_, recorder) = recorder(4096);
    let recorder = Arc::new(recorder);
    let (first, second) = (recorder.part(0..2048), recorder.part(2048..4096));
    let (first, second) = (first.expect("it fits"), second.expect("it fits"));
    second.write_at(0, b"b").expect("it fits");
    first.write_at(0, b"a").expect("it fits");
    first.flush().expect("flushed");
    first.write_at(512, b"c").expect("it fits");
    let seen = |recorder: &Recorder, from: usize| {
        let cuts = recorder.cuts(Sweep { subsets: 64, ..Sweep::seeded(1) });
        let cuts = cuts.filter(|cut| cut.events >= from).map(|cut| bytes(&cut.image));
        cuts.map(|bytes| (bytes[0], bytes[512], bytes[2048])).collect::<BTreeSet<_>>()
    };
    let all = [(b'a', 0, 0), (b'a', 0, b'b'), (b'a', b'c', 0), (b'a', b'c', b'b')];
    assert_eq!(seen(&recorder, 3), BTreeSet::from(all));
    second.flush().expect("flushed");
    assert_eq!(seen(&recorder, 5), BTreeSet::from([(b'a', 0, b'b'), (b'a', b'c', b'b')]));
}
