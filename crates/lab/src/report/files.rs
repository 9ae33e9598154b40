//! The files of reports by their names, and errors about them.

use std::io;
use std::path::Path;

use crate::run::RunError;

/// The page's name.
pub const PAGE: &str = "report.html";
/// The page over several directories, next to their summary.
pub const INDEX: &str = "index.html";
/// The samples' name.
pub const CSV: &str = "samples.csv";
/// Where the figures are.
pub const FIGURES: &str = "figures";

/// An error about a file.
pub(super) fn failed(path: &Path) -> impl FnOnce(io::Error) -> RunError + '_ {
    move |source| RunError::Io { what: path.display().to_string(), source }
}
