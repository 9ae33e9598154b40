//! Programs that tests use and that are not of this workspace.

use std::path::{Path, PathBuf};

use extant_testkit::tool;

/// A program in PATH, where cargo puts what it installs, or where `cargo xtask test` does.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let of_cargo = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    // Next to the directory of the profile that we were built with.
    let profile = Path::new(env!("CARGO_BIN_EXE_extant")).parent();
    let of_tests = profile.and_then(Path::parent).map(|target| target.join("tools"));
    let installed = [of_cargo, of_tests].into_iter().flatten();
    let mut installed = installed.map(|root| root.join("bin").join(name));
    let found = installed.find(|path| path.is_file());
    tool(name).map(|tool| tool.path().to_owned()).or(found)
}
