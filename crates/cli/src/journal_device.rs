//! Journals on devices of their own, for commands whose options do not name one: found, opened, and
//! reported where they are missing.

use std::path::Path;
use std::sync::Arc;

use extant::rooms::device::{Device, FileDevice, FileDeviceOptions};
use extant::rooms::image::mkfs::probe::{is_ext, probe};
use extant::rooms::journal::{ExternalJournal, FoundJournal, JournalError, NotOpened};
use extant::rooms::ondisk::{FormatError, GroupNo, Location};
use extant::rooms::reader::{Error, Journal, find_backup_superblock};
use extant::rooms::storage::partition::{Partition, PartitionTable};
use extant::rooms::storage::{DeviceUrl, Files};

use crate::failure::Failure;

/// The journal's device of the volume on `volume`, opened as `options` say. `None` where the
/// journal is inside, or is not found; with it goes why not, for a command that needs it.
pub(crate) fn of(
    volume: &dyn Device,
    options: &FileDeviceOptions,
) -> Result<FoundJournal, Failure> {
    // The error names the device already.
    ExternalJournal::find_for(volume, options).map_err(Failure::new)
}

/// How a reader takes the journal of the volume on `volume`. A clean volume is read without
/// its journal.
pub(crate) fn for_reading(volume: &dyn Device) -> Result<Journal, Failure> {
    let journal = opened(ExternalJournal::needed_to_read(volume), &FileDeviceOptions::new());
    let journal = journal.map_err(|error| match error {
        NotOpened::Journal(error) => Failure::new(format_args!("{error}: {}", hint(&error))),
        NotOpened::File(error) => Failure::new(error),
    })?;
    Ok(journal.map_or(Journal::Replay, |device| Journal::ReplayExternal(device)))
}

/// The same before the process restricts itself, after which no device is found. Of an image in
/// layers that have headers nothing is read then, so that its journal is not found.
pub(crate) fn for_reading_of(url: &DeviceUrl, files: &Files) -> Result<Journal, Failure> {
    match url.plain_device(files) {
        Some(Ok(device)) => for_reading(&*device),
        // OpenArgs the image tells why.
        Some(Err(_)) | None => Ok(Journal::Replay),
    }
}

fn opened(
    journal: Option<ExternalJournal>,
    options: &FileDeviceOptions,
) -> Result<Option<Arc<FileDevice>>, NotOpened> {
    Ok(journal.map(|journal| journal.open(options)).transpose()?.flatten())
}

/// The use that a volume is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Purpose {
    Reading,
    Changing,
}

/// Why the volume on `device` was not opened, and what to do where its journal is missing or
/// something else is there.
pub(crate) fn not_opened(
    place: impl AsRef<Path>,
    device: &dyn Device,
    error: &Error,
    purpose: Purpose,
) -> Failure {
    let missing = match error {
        Error::Journal(error) => missing(place.as_ref(), error),
        Error::Format(error) => not_a_volume(place.as_ref(), device, error, purpose),
        _ => None,
    };
    missing.unwrap_or_else(|| Failure::at(place, error))
}

/// The failure of a command that found a corrupt primary superblock, or none: what else is there,
/// or the backup to read the volume by. `None` for other errors.
pub(crate) fn not_a_volume(
    place: &Path,
    device: &dyn Device,
    error: &FormatError,
    purpose: Purpose,
) -> Option<Failure> {
    let (flaw, other) = match error {
        FormatError::NotExt(flaw) => (flaw, other_content(place, device)),
        FormatError::Corrupt { location: Location::Superblock(GroupNo(0)), flaw } => (flaw, None),
        _ => return None,
    };
    let backup = || {
        let block = find_backup_superblock(device)?;
        let name = place.display().to_string();
        let hint = match purpose {
            Purpose::Reading if name.contains('?') => format!("try {name}&sb={block}"),
            Purpose::Reading => format!("try {name}?sb={block}"),
            Purpose::Changing => format!("run extant fsck {name}"),
        };
        Some(Failure::at(place, format_args!("bad superblock: {flaw}: {hint}")))
    };
    other.or_else(backup)
}

/// The failure of a command that found something else than an ext file system; `None` if what is
/// there is not known.
pub(crate) fn other_content(place: &Path, device: &dyn Device) -> Option<Failure> {
    let found = probe(device, 0).ok()??;
    let name = place.display();
    let hint = match &found[..] {
        it if it.ends_with("partition table") => match &ext_partitions(device)[..] {
            [] => format!(": name a partition, such as {}", partition_name(place, 1)),
            numbers => {
                let names: Vec<_> =
                    numbers.iter().map(|number| partition_name(place, *number)).collect();
                format!(": name a partition with an ext file system: {}", names.join(", "))
            }
        },
        it if it.ends_with("LUKS container") => format!(": use crypt:{name}"),
        it if it.contains("LVM2") => format!(": use lvm:{name}"),
        _ => String::new(),
    };
    let why = format_args!("not an ext2, ext3 or ext4 file system: contains {found}{hint}");
    Some(Failure::at(place, why))
}

/// The URL of a partition of a disk that has one: the number comes before its options.
fn partition_name(disk: &Path, number: u32) -> String {
    let name = disk.display().to_string();
    match name.split_once('?') {
        Some((path, options)) if !disk.exists() => format!("{path}#p{number}?{options}"),
        _ => format!("{name}#p{number}"),
    }
}

/// Refuses a device that holds something else than an ext file system, and says what.
pub(crate) fn refuse_other_content(
    place: impl AsRef<Path>,
    device: &dyn Device,
) -> Result<(), Failure> {
    match is_ext(device) {
        Ok(false) => other_content(place.as_ref(), device).map_or(Ok(()), Err),
        Ok(true) | Err(_) => Ok(()),
    }
}

/// The partitions of a whole disk that hold an ext file system, by their numbers.
pub(crate) fn ext_partitions(disk: &dyn Device) -> Vec<u32> {
    let Ok(table) = PartitionTable::read(disk) else { return Vec::new() };
    let holds_ext = |partition: &&Partition| {
        let found = probe(disk, partition.start).ok().flatten();
        found.is_some_and(|found| found.starts_with("an ext"))
    };
    table.partitions.iter().filter(holds_ext).map(|partition| partition.number).collect()
}

/// The failure of a command that did not find the journal's device; `None` for other errors.
pub(crate) fn missing(place: &Path, error: &JournalError) -> Option<Failure> {
    let failure = || Failure::at(place, format_args!("{error}: {}", hint(error)));
    error.wants_device().then(failure)
}

/// How to fix a missing journal for a command without an option for its device.
fn hint(error: &JournalError) -> &'static str {
    match error {
        JournalError::NotListed { .. } => "use -o journal_path=DEVICE",
        JournalError::OnTwoDevices { .. } => "detach one (losetup -d)",
        _ => "attach it (losetup)",
    }
}
