//! Limits of users, groups and projects.

use super::credits;
use crate::engine::Engine;
use crate::write::quota;
use extant_ondisk::quota::{QuotaKind, QuotaRecord};
use extant_reader::{Error, MetadataRead};

/// Blocks that a quota file may grow by for one record, each with its bitmap and the map's nodes.
const GROWTH: u32 = 5 * 8;

impl Engine {
    /// The use and the limits of an ID; `None` where nothing was ever counted for it, or the
    /// volume keeps no such quotas. Data that wait in memory are not in it.
    ///
    /// # Errors
    /// A broken quota file, or the device failed.
    pub fn quota_record(&self, kind: QuotaKind, id: u32) -> Result<Option<QuotaRecord>, Error> {
        let _reserved = self.quotas.lock();
        quota::record(self, kind, id)
    }

    /// Sets the limits of an ID, which are those of `limits`; its use stays. Grace times start
    /// again where the use is above a soft limit.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a volume without such quotas, [`Error::NoSpace`] if the file must
    /// grow, [`Error::ReadOnly`], a broken quota file, or the journal or device failed.
    pub fn set_quota_limits(&self, kind: QuotaKind, limits: &QuotaRecord) -> Result<(), Error> {
        if self.info().quota_file(kind).is_none() {
            return Err(Error::NotSupported("limits on a volume without quotas of this kind"));
        }
        self.with_space(|| {
            let mut edit = self.edit(credits::QUOTA + GROWTH)?;
            edit.set_quota_limits(kind, limits)?;
            edit.finish();
            Ok(())
        })
    }
}
