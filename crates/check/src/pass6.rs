//! Pass 6.

use crate::check::Check;
use crate::store::CheckError;

impl Check<'_> {
    pub(crate) fn pass6(&mut self) -> Result<(), CheckError> {
        Ok(())
    }
}
