//! `cargo xtask wheel` and `cargo xtask libextant`: the library for Python and for C, as they are
//! installed.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::{Failure, machine};

/// The builder of the wheel, with the version that was tried.
const MATURIN: &str = "maturin==1.16.0";

/// Build the wheel for Python
#[derive(clap::Args)]
pub(crate) struct Wheel {
    /// Directory of the wheel
    #[arg(long, value_name = "DIRECTORY", default_value = "target/wheels")]
    out: PathBuf,
}

impl Wheel {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        build_wheel(&self.out)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Builds the wheel in a directory.
pub(crate) fn build_wheel(out: &Path) -> Result<(), Failure> {
    let programs = machine::python_environment(&[MATURIN])?;
    let mut build = Command::new(programs.join("maturin"));
    build.current_dir(machine::workspace());
    build.args(["build", "--release", "--locked", "--manifest-path"]);
    build.args(["bindings/python/Cargo.toml", "--out"]).arg(out);
    succeeds(build, "maturin")
}

/// Build the library for C, and install it with header and pkg-config file
#[derive(clap::Args)]
pub(crate) struct Libextant {
    /// Directory to install into: include, lib, lib/pkgconfig
    #[arg(value_name = "PREFIX")]
    prefix: PathBuf,
    /// Directory where the files will be, if they are moved afterwards
    #[arg(long, value_name = "DIRECTORY")]
    as_prefix: Option<PathBuf>,
}

impl Libextant {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let source = machine::workspace().join("bindings/c");
        let mut build = machine::cargo();
        build.args(["build", "--release", "--locked", "--package", "extant-c"]);
        succeeds(build, "cargo build")?;
        let built = machine::target_dir().join("release/libextant_c.a");
        let (lib, include) = (self.prefix.join("lib"), self.prefix.join("include"));
        for dir in [&lib.join("pkgconfig"), &include] {
            fs::create_dir_all(dir)?;
        }
        let version = env!("CARGO_PKG_VERSION");
        let shared = lib.join(format!("libextant.so.{version}"));
        succeeds(link(&built, &source.join("extant.map"), &shared), "cc")?;
        for name in ["libextant.so.0", "libextant.so"] {
            let link = lib.join(name);
            if link.symlink_metadata().is_ok() {
                fs::remove_file(&link)?;
            }
            symlink(shared.file_name().unwrap_or_default(), link)?;
        }
        fs::copy(&built, lib.join("libextant.a"))?;
        fs::copy(source.join("include/extant.h"), include.join("extant.h"))?;
        let prefix = match self.as_prefix {
            Some(prefix) => prefix,
            None => fs::canonicalize(&self.prefix)?,
        };
        let about = fs::read_to_string(source.join("extant.pc.in"))?;
        let about = about.replace("@PREFIX@", &prefix.display().to_string());
        fs::write(lib.join("pkgconfig/extant.pc"), about.replace("@VERSION@", version))?;
        println!("installed in {}", self.prefix.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Links the shared library from the static one: rustc's own link has no versions of symbols.
fn link(library: &Path, versions: &Path, shared: &Path) -> Command {
    let mut link = Command::new("cc");
    link.args(["-shared", "-Wl,-soname,libextant.so.0", "-Wl,--gc-sections", "-s"]);
    link.arg(format!("-Wl,--version-script={}", versions.display())).arg("-o").arg(shared);
    link.arg("-Wl,--whole-archive").arg(library);
    link.args(["-Wl,--no-whole-archive", "-pthread", "-ldl", "-lm"]);
    link
}

fn succeeds(mut command: Command, what: &str) -> Result<(), Failure> {
    if command.status()?.success() { Ok(()) } else { Err(format!("{what} failed").into()) }
}
