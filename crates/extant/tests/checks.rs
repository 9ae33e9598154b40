//! The outcome of a check in one word, and the replay of a journal alone.

use std::sync::Arc;

use extant::{
    Checker, Device, FileSystem, Formatter, MemoryDevice, Opened, Repairs, Verdict, inspect,
    recover,
};

fn verdict(device: &MemoryDevice, repairs: Repairs) -> Verdict {
    let checker = Checker::new().repair(repairs).force(true);
    Verdict::of(&checker.check(Arc::new(device.fork())))
}

fn formatted() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(8 << 20));
    Formatter::new().format(&*device).expect("it is made");
    device
}

/// A copy of a volume at a moment when the journal holds a committed transaction.
fn with_a_log_that_waits() -> MemoryDevice {
    let device = formatted();
    let fs = FileSystem::on_device(device.clone()).expect("it is opened");
    fs.write("/file", "text").expect("it is written");
    fs.sync().expect("it is committed");
    device.fork()
}

#[test]
fn a_log_that_waits_is_no_damage() {
    assert_eq!(verdict(&formatted(), Repairs::No), Verdict::Clean);
    let waiting = with_a_log_that_waits();
    assert_eq!(verdict(&waiting, Repairs::No), Verdict::NeedsJournal);
    assert!(matches!(verdict(&waiting, Repairs::Preen), Verdict::Clean | Verdict::Repaired));
}

/// The inode table of group 0 begins with the inodes 1 to 10; the root directory is 2.
#[test]
fn damage_is_damage_until_it_is_repaired() {
    let device = formatted();
    let summary = inspect::summary(device.clone()).expect("it is read");
    let table = summary.groups.expect("groups")[0].inode_table * summary.block_size;
    device.write_at(table + 256, &[0x5a; 128]).expect("it is damaged");
    assert_eq!(verdict(&device, Repairs::No), Verdict::Damaged);
    assert_eq!(verdict(&device, Repairs::Preen), Verdict::Damaged);
    assert_eq!(verdict(&device, Repairs::Yes), Verdict::Repaired);
}

#[test]
fn a_device_without_a_superblock_is_unreadable() {
    let device = MemoryDevice::new(8 << 20);
    for repairs in [Repairs::No, Repairs::Preen, Repairs::Yes] {
        assert_eq!(verdict(&device, repairs), Verdict::Unreadable);
    }
}

#[test]
fn what_was_committed_is_on_the_volume_after_a_recovery() {
    let cut: Arc<dyn Device> = Arc::new(with_a_log_that_waits());
    let recovered = recover(&Opened::real(cut.clone())).expect("recovered").expect("a journal");
    assert!(recovered.transactions > 0 && recovered.damage.is_empty(), "{recovered:?}");
    let again = recover(&Opened::real(cut.clone())).expect("recovered").expect("a journal");
    assert_eq!((again.transactions, again.blocks), (0, 0));
    let read = FileSystem::on_device_read_only(cut).expect("it is opened");
    assert_eq!(read.read_to_string("/file").expect("it is read"), "text");
}

#[test]
fn a_volume_that_is_only_read_is_not_written() {
    let waiting = Arc::new(with_a_log_that_waits());
    let before = waiting.to_vec();
    let fs = FileSystem::on_device_read_only(waiting.clone()).expect("it is opened");
    assert_eq!(fs.read_to_string("/file").expect("it is read"), "text");
    assert_eq!(fs.write("/other", "text").unwrap_err().errno(), 30);
    fs.close().expect("it is closed");
    assert!(waiting.to_vec() == before);
}
