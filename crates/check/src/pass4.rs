//! Pass 4.

use crate::check::Check;
use crate::store::CheckError;

impl Check<'_> {
    pub(crate) fn pass4(&mut self) -> Result<(), CheckError> {
        Ok(())
    }
}
