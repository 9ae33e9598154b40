//! The restrictions of commands that read untrusted images.

use std::path::Path;

use crate::failure::Failure;

/// Restricts this process to the files that it has open, unless `no_sandbox`. `still` are files
/// that it opens later.
pub(crate) fn enter(no_sandbox: bool, still: &[&Path]) -> Result<(), Failure> {
    if no_sandbox {
        return Ok(());
    }
    // Where the kernel's landlock is too old, system calls are filtered all the same.
    extant::rooms::mount::sandbox::restrict(still).map(|_| ()).map_err(|error| {
        Failure::new(format_args!(
            "cannot enter the sandbox: {error} (use --no-sandbox to run without it)"
        ))
    })
}
