//! Handles of the library own what they use: other threads and other languages may keep them.

use extant::inspect::{RawView, VolumeMap, VolumeSummary};
use extant::{
    CheckReport, Checker, Device, DirEntry, Error, File, FileSystem, Formatter, Image,
    ImageBuilder, Metadata, OpenOptions, Opened, PathError, ReadDir, Report, Resizer, Schemes,
    TarWriter, Tuner,
};

fn is_owned<T: Send + 'static>() {}

#[test]
fn handles_have_no_lifetime_and_move_between_threads() {
    is_owned::<FileSystem>();
    is_owned::<File>();
    is_owned::<ReadDir>();
    is_owned::<DirEntry>();
    is_owned::<Metadata>();
    is_owned::<OpenOptions>();
    is_owned::<Image>();
    is_owned::<Opened>();
    is_owned::<Schemes>();
    is_owned::<Formatter>();
    is_owned::<ImageBuilder>();
    is_owned::<Report>();
    is_owned::<Checker>();
    is_owned::<CheckReport>();
    is_owned::<Tuner>();
    is_owned::<Resizer>();
    is_owned::<TarWriter>();
    is_owned::<RawView>();
    is_owned::<VolumeMap>();
    is_owned::<VolumeSummary>();
    is_owned::<Error>();
    is_owned::<PathError>();
    #[cfg(feature = "mount")]
    is_owned::<(extant::Mounter, extant::Mount)>();
}

/// Entries and descriptors live on without the handle that made them.
#[test]
fn entries_and_descriptors_outlive_their_handles() {
    let device = std::sync::Arc::new(extant::MemoryDevice::new(8 << 20));
    Formatter::new().format(&*device).expect("it is made");
    let mut entries = {
        let fs = FileSystem::on_device(device.clone()).expect("it is opened");
        fs.read_dir("/").expect("it is read")
    };
    let entry = entries.next().expect("an entry").expect("it is read");
    assert_eq!(entry.file_name(), "lost+found");
    drop((entries, entry));
    let device: std::sync::Arc<dyn Device> = device;
    let mut descriptors = {
        let view = RawView::new(device, Default::default()).expect("it is read");
        let geometry = view.geometry(false).expect("it is valid");
        view.descriptors(&geometry)
    };
    let first = descriptors.next().expect("a descriptor").expect("it is read");
    assert_eq!(first.group.0, 0);
    assert!(descriptors.next().is_none());
}
