//! Pass 3.

use crate::check::Check;
use crate::store::CheckError;

impl Check<'_> {
    pub(crate) fn pass3(&mut self) -> Result<(), CheckError> {
        Ok(())
    }
}
