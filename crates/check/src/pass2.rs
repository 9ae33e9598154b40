//! Pass 2.

use crate::check::Check;
use crate::store::CheckError;

impl Check<'_> {
    pub(crate) fn pass2(&mut self) -> Result<(), CheckError> {
        Ok(())
    }
}
