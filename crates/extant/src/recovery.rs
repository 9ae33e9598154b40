//! The replay of a journal, and nothing else.

use extant_device::FileDeviceOptions;
use extant_journal::{ExternalJournal, Finish, Recovered, recover_volume};
use extant_offline::mmp::{MmpBlock, Taken, interval};
use extant_offline::read_primary_superblock;
use extant_ondisk::mmp::{Mmp, MmpSequence};
use extant_ondisk::{BlockNo, Geometry, IncompatFeatures};
use extant_reader::{Error as Cause, OtherHost};
use extant_storage::Opened;

use crate::named_device::journal_device;
use crate::open_error::OpenError;

/// Replays the journal of the volume on an opened image, and marks it empty. Besides what the
/// journal holds, only the superblocks and the inode of the journal are read: it takes the same
/// time however large the volume is. `None` if the volume has no journal.
///
/// Damage in the log ends the replay or leaves blocks out; it is in the result, and the superblock
/// says then that a check is due. A journal on a device of its own is found among the machine's
/// block devices.
///
/// ```
/// use extant::{Access, Image, recover};
///
/// let dir = tempfile::tempdir()?;
/// let path = dir.path().join("disk.img");
/// extant::Formatter::new().create_file(&path, 8 << 20)?;
/// let opened = Image::open(&path)?.device(Access::ReadWrite)?;
/// let recovered = recover(&opened)?.expect("it has a journal");
/// assert_eq!((recovered.transactions, recovered.damage.len()), (0, 0));
/// opened.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// There is no volume, its journal is not found or is not one, another host has the volume, or the
/// device failed. It can be called again then.
pub fn recover(opened: &Opened) -> Result<Option<Recovered>, OpenError> {
    let device = &*opened.device;
    let raw = read_primary_superblock(device).map_err(Cause::from)?;
    let geometry = Geometry::new(&raw).map_err(Cause::from)?;
    let files = FileDeviceOptions::default().write(true);
    let external = journal_device(ExternalJournal::of_volume(device), &files)?;
    let block = BlockNo(raw.s_mmp_block.get());
    let has_mmp = geometry.has_incompat(IncompatFeatures::MMP) && geometry.contains(block, 1);
    let mmp = has_mmp.then_some(MmpBlock { device, geometry: &geometry, block });
    if let Some(mmp) = &mmp {
        claim(mmp, raw.s_mmp_interval.get(), opened)?;
    }
    let outcome = recover_volume(device, external.as_deref(), Finish::Reset);
    if let Some(mmp) = &mmp {
        let (raw, ours) = mmp.read().map_err(Cause::from)?;
        mmp.write(raw, &Mmp { sequence: MmpSequence::Clean, ..ours }).map_err(Cause::from)?;
    }
    Ok(outcome.map_err(Cause::from)?)
}

/// Takes a volume that no host has: one that was not released may be in use, and a check is due.
fn claim(mmp: &MmpBlock<'_>, seconds: u16, opened: &Opened) -> Result<(), Cause> {
    let (_, before) = mmp.read()?;
    if before.sequence != MmpSequence::Clean {
        return Err(in_use(&before));
    }
    let time = opened.env.now().seconds.max(0).cast_unsigned();
    let ours = Mmp { time, check_interval: interval(seconds, before.check_interval), ..before };
    match mmp.take(&ours, &opened.env, &mut |_| {})? {
        Taken::Ours(_) => Ok(()),
        Taken::Theirs(other) => Err(in_use(&other)),
    }
}

fn in_use(other: &Mmp) -> Cause {
    let end = other.node_name.iter().position(|byte| *byte == 0);
    let node = &other.node_name[..end.unwrap_or(other.node_name.len())];
    let is_check = other.sequence == MmpSequence::Fsck;
    Cause::InUse(OtherHost { node: node.escape_ascii().to_string(), is_check })
}
