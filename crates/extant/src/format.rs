//! New file systems.

use extant_device::Device;
use extant_image::mkfs::figures::figures;
use extant_image::mkfs::{
    Config, DeviceFacts, Identity, MkfsError, NewVolume, Options, Program, WriteRules,
};
use extant_layout::RunSet;
use std::ffi::OsString;

/// Formats a whole device. `options` are words as `extant mkfs` takes them, without the device's name: `["-t", "ext4", "-b",
/// "1024"]`. No configuration file is read.
///
/// # Errors
/// Everything that mkfs refuses, and failures of the device.
///
/// ```
/// let device = extant::MemoryDevice::new(8 << 20);
/// extant::format(&device, ["-t", "ext4", "-L", "small"])?;
/// # Ok::<(), extant::MkfsError>(())
/// ```
pub fn format<I>(device: &dyn Device, options: I) -> Result<(), MkfsError>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let mut volume = planned(device, options)?;
    volume.write_to(
        device,
        // The device may be a simulated drive's.
        WriteRules { one_thread: true, ..WriteRules::default() },
    )?;
    Ok(())
}

/// Formats a whole device that reads as zero, and fills it: so many inodes are in use by empty files, as many as said in each
/// directory, and by the directories. For experiments; no tree of them is held in memory.
///
/// # Errors
/// As [`format()`]; the volume is too small.
pub fn format_filled<I>(
    device: &dyn Device,
    options: I,
    inodes: u64,
    files_per_directory: u64,
) -> Result<(), MkfsError>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    planned(device, options)?.write_filled(device, inodes, files_per_directory)
}

fn planned<I>(device: &dyn Device, options: I) -> Result<NewVolume, MkfsError>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let words = options.into_iter().map(Into::into).chain(["device".into()]);
    let options = Options::parse(words)?;
    let sector = device.sector_size();
    let facts = DeviceFacts {
        size: Some(device.size()),
        logical_sector: sector,
        physical_sector: sector,
        first_meta_bg: None,
    };
    let figures = figures(Program::Extant, &options, &Config::built_in(), &facts)?;
    if figures.is_journal_device() || figures.extended.offset.is_some() {
        let refused = "a journal device or an offset: use extant mkfs";
        return Err(MkfsError::Invalid(refused.to_owned()));
    }
    let identity = Identity::new(&options, &figures, None)?;
    let mut volume = NewVolume::new(figures, identity, &RunSet::new())?;
    volume.add_special_inodes(&RunSet::new())?;
    Ok(volume)
}
