//! The differences between two new file systems of the same parameters: UUID, hash seed, times,
//! names, owner.

use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

use extant_ondisk::Uuid;

use super::error::MkfsError;
use super::extended::RootOwner;
use super::options::{Options, UuidChoice};
use super::params::FsParams;

/// The environment variable that replaces the clock.
pub const EPOCH_VARIABLE: &str = "SOURCE_DATE_EPOCH";
/// The environment variable of e2fsprogs that does so too.
pub const FAKE_TIME_VARIABLE: &str = "E2FSPROGS_FAKE_TIME";

/// The values that no option table can predict.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity {
    /// `s_uuid`
    pub uuid: Uuid,
    /// `s_hash_seed`
    pub hash_seed: Uuid,
    /// Seconds since 1970: all times of the new file system.
    pub time: u64,
    /// `s_volume_name`
    pub label: [u8; 16],
    /// `s_last_mounted`
    pub last_mounted: [u8; 64],
    /// Owner and group of the root directory.
    pub root_owner: (u32, u32),
    /// Host and device, for readers of the MMP block.
    pub made_by: ([u8; 64], [u8; 32]),
    /// Permissions of the root directory.
    pub root_perms: u16,
    /// The root directory's security.selinux.
    pub root_selinux: Option<String>,
    /// The security.selinux of lost+found.
    pub lost_found_selinux: Option<Vec<u8>>,
    /// For `s_max_mnt_count` with periodic checks: 20 to 39, spread so that not all volumes are
    /// checked at once.
    pub max_mount_count: u16,
}

impl Identity {
    /// By the options; other fields are random, and times are the present unless `time` is
    /// given, in seconds since 1970.
    pub fn new(options: &Options, params: &FsParams, time: Option<u64>) -> Result<Self, MkfsError> {
        let time = time.unwrap_or_else(now);
        let uuid = match options.uuid_choice()? {
            UuidChoice::Given(uuid) => Uuid(uuid.into_bytes()),
            UuidChoice::Clear => Uuid::NIL,
            UuidChoice::Random => random_uuid()?,
            UuidChoice::Time => time_uuid()?,
        };
        let hash_seed = match params.extended.hash_seed {
            Some(seed) => Uuid(seed.into_bytes()),
            None => random_uuid()?,
        };
        let root_owner = match params.extended.root_owner {
            None => (0, 0),
            Some(RootOwner::Ids { uid, gid }) => (uid, gid),
            Some(RootOwner::Caller) => {
                (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw())
            }
        };
        Ok(Self {
            root_owner,
            made_by: (
                cut(rustix::system::uname().nodename().to_bytes()),
                cut(options.device.as_os_str().as_bytes()),
            ),
            root_perms: params.extended.root_perms.unwrap_or(0o755),
            root_selinux: params.extended.root_selinux.clone(),
            max_mount_count: 20 + u16::from(random::<1>()?[0]) % 20,
            ..Self::given(options, uuid, hash_seed, time)
        })
    }

    /// Nothing random and no present time: for a volume whose root directory comes from a source.
    pub(crate) fn given(options: &Options, uuid: Uuid, hash_seed: Uuid, time: u64) -> Self {
        Self {
            uuid,
            hash_seed,
            time,
            label: cut(options.label.as_deref().unwrap_or_default()),
            last_mounted: cut(options.last_mounted.as_deref().unwrap_or_default()),
            root_owner: (0, 0),
            made_by: ([0; 64], [0; 32]),
            root_perms: 0o755,
            root_selinux: None,
            lost_found_selinux: None,
            max_mount_count: 20,
        }
    }
}

/// The bytes that fit, the rest zero.
pub(crate) fn cut<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
    field
}

pub(crate) fn now() -> u64 {
    // A clock before 1970 is invalid.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

pub(crate) fn random<const N: usize>() -> Result<[u8; N], MkfsError> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        match rustix::rand::getrandom(&mut bytes[filled..], flags) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => {
                return Err(MkfsError::Io { path: "getrandom".into(), source: errno.into() });
            }
        }
    }
    Ok(bytes)
}

pub(crate) fn random_uuid() -> Result<Uuid, MkfsError> {
    Ok(Uuid(uuid::Builder::from_random_bytes(random()?).into_uuid().into_bytes()))
}

/// Version 1, with a random node (marked by its multicast bit) and clock sequence.
pub(crate) fn time_uuid() -> Result<Uuid, MkfsError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut node: [u8; 6] = random()?;
    node[0] |= 1;
    let counter = u16::from_le_bytes(random()?) & 0x3fff;
    let stamp = uuid::Timestamp::from_unix_time(
        since.as_secs(),
        since.subsec_nanos(),
        u128::from(counter),
        14,
    );
    let (ticks, counter) = stamp.to_gregorian();
    Ok(Uuid(
        uuid::Builder::from_gregorian_timestamp(ticks, counter, &node).into_uuid().into_bytes(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_carry_their_version() {
        assert_eq!(random_uuid().expect("random").0[6] >> 4, 4);
        assert_eq!(time_uuid().expect("random").0[6] >> 4, 1);
        assert_ne!(random_uuid().expect("random"), random_uuid().expect("random"));
    }

    #[test]
    fn names_are_cut_to_their_field() {
        assert_eq!(&cut::<4>(b"abcdef"), b"abcd");
        assert_eq!(&cut::<4>(b"ab"), b"ab\0\0");
    }
}
