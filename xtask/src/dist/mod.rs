//! `cargo xtask dist`: the packages of the program. They are a static binary, two Debian packages,
//! an OCI layout, a bill of materials and the licences. Two runs make the same bytes.

mod debian;
mod materials;
mod oci;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use sha2::{Digest, Sha256};

use crate::{Failure, machine};

/// The platform of the static binary.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The features of the program in packages: all but the lab.
const FEATURES: [&str; 3] = ["--no-default-features", "--features", "crypt,mount,prompt,sim,vm"];
/// The checker of licences and sources, with the version that was tried.
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");

/// Make packages: a static binary, .deb files, an OCI layout, a bill of materials
#[derive(clap::Args)]
pub(crate) struct Dist {
    /// Directory of the packages, which is emptied
    #[arg(long, value_name = "DIRECTORY", default_value = "target/dist")]
    out: PathBuf,
    /// Pack this static program instead of building one
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Build it a second time in another directory, and fail unless all bytes are the same
    #[arg(long, conflicts_with = "binary")]
    twice: bool,
    /// Check the licences and sources of all dependencies with cargo-deny first
    #[arg(long)]
    deny: bool,
}

/// The facts that all packages have in common.
struct Release {
    version: &'static str,
    /// Seconds since 1970 of everything in the packages.
    epoch: u64,
    /// The program.
    program: PathBuf,
    /// The licences of the program and of all that is linked into it.
    licences: String,
}

impl Dist {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if self.deny {
            deny()?;
        }
        let program = match self.binary {
            Some(binary) => fs::canonicalize(binary)?,
            None => built(machine::workspace(), &machine::target_dir())?,
        };
        let out = &self.out;
        if out.exists() {
            fs::remove_dir_all(out)?;
        }
        fs::create_dir_all(out)?;
        let out = fs::canonicalize(out)?;
        pack(program, &out)?;
        if self.twice {
            let again = tempfile::tempdir()?;
            pack(built_elsewhere()?, again.path())?;
            same_sums(&out, again.path())?;
        }
        println!("packages in {}", out.display());
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes all packages of a program.
fn pack(program: PathBuf, out: &Path) -> Result<(), Failure> {
    let version = env!("CARGO_PKG_VERSION");
    let materials = materials::Materials::read()?;
    let licences = materials.licences()?;
    let release = Release { version, epoch: epoch()?, program, licences };
    install(&release.program, &out.join(format!("extant-{version}-x86_64-linux")), 0o755)?;
    fs::write(out.join("LICENCES.txt"), &release.licences)?;
    let bill = serde_json::to_vec_pretty(&materials.bill(release.epoch)?)?;
    fs::write(out.join(format!("extant-{version}.cdx.json")), bill)?;
    oci::make(&release, &out.join(format!("extant-{version}.oci")))?;
    debian::make(&release, out)?;
    write_sums(out)
}

fn deny() -> Result<(), Failure> {
    let (name, version) = CARGO_DENY;
    let program = machine::install_tool(name, version, &[])?;
    let mut check = Command::new(program);
    check.current_dir(machine::workspace());
    check.args(["--locked", "check", "licenses", "bans", "sources"]);
    succeeds(check, "cargo deny")
}

/// Builds the program, linked statically and without traces of where it was built.
fn built(source: &Path, target: &Path) -> Result<PathBuf, Failure> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let remap = |from: &Path, to: &str| format!("--remap-path-prefix={}={to}", from.display());
    let mut flags = vec!["-Ctarget-feature=+crt-static".to_owned(), "-Cstrip=symbols".to_owned()];
    flags.push(remap(source, "/extant"));
    flags.extend(home.map(|home| remap(&home, "/cargo")));
    let mut build = machine::cargo();
    build.args(["build", "--release", "--locked", "--package", "extant-cli", "--target", TARGET]);
    build.args(FEATURES).current_dir(source).env("CARGO_TARGET_DIR", target);
    // The separator of arguments that may have spaces.
    build.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
    succeeds(build, "cargo build")?;
    Ok(target.join(TARGET).join("release/extant"))
}

/// Builds the program again, of a copy of the sources and with nothing that was built before.
fn built_elsewhere() -> Result<PathBuf, Failure> {
    let dir = machine::target_dir().join("twice");
    let (source, target) = (dir.join("another/directory"), dir.join("target"));
    if source.exists() {
        fs::remove_dir_all(&source)?;
    }
    let mut list = Command::new("git");
    list.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    list.current_dir(machine::workspace());
    for name in output_of(list)?.split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = Path::new(OsStr::from_bytes(name));
        let from = machine::workspace().join(name);
        // A file that was removed is in the list until the next commit.
        if from.is_file() {
            let to = source.join(name);
            fs::create_dir_all(to.parent().unwrap_or(&source))?;
            fs::copy(from, to)?;
        }
    }
    if target.exists() {
        fs::remove_dir_all(&target)?;
    }
    built(&source, &target)
}

/// Fails unless two directories of packages have the same bytes.
fn same_sums(one: &Path, other: &Path) -> Result<(), Failure> {
    let read = |dir: &Path| fs::read_to_string(dir.join("SHA256SUMS"));
    let (one, other) = (read(one)?, read(other)?);
    let differs = one.lines().filter(|line| !other.lines().any(|it| it == *line));
    let names: Vec<_> = differs.filter_map(|line| line.split("  ").nth(1)).collect();
    if one == other {
        println!("two builds in two directories: {} files are the same", one.lines().count());
        return Ok(());
    }
    Err(format!("two builds in two directories differ: {}", names.join(", ")).into())
}

/// `SOURCE_DATE_EPOCH`, or the time of the last commit.
fn epoch() -> Result<u64, Failure> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return epoch.parse().map_err(|_| format!("invalid SOURCE_DATE_EPOCH: '{epoch}'").into());
    }
    let mut log = Command::new("git");
    log.args(["log", "-1", "--format=%ct"]).current_dir(machine::workspace());
    let time =
        log.output().ok().and_then(|it| String::from_utf8(it.stdout).ok()?.trim().parse().ok());
    time.ok_or_else(|| "no commit has a time: set SOURCE_DATE_EPOCH".into())
}

/// A time as RFC 3339 has it, by date(1).
fn time_of(epoch: u64) -> Result<String, Failure> {
    let mut date = Command::new("date");
    date.args(["-u", "-d", &format!("@{epoch}"), "+%Y-%m-%dT%H:%M:%SZ"]);
    Ok(String::from_utf8(output_of(date)?)?.trim_end().to_owned())
}

fn succeeds(mut command: Command, what: &str) -> Result<(), Failure> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{what} failed: {status}").into()),
        Err(error) => Err(format!("{what}: {error}").into()),
    }
}

/// The standard output of a command.
fn output_of(mut command: Command) -> Result<Vec<u8>, Failure> {
    let output = command.output()?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(format!("{command:?} failed: {}", output.status).into()),
    }
}

/// Copies a file and makes the directories above it.
fn install(from: &Path, to: &Path, mode: u32) -> Result<(), Failure> {
    let bytes = fs::read(from).map_err(|error| format!("{}: {error}", from.display()))?;
    put(to, &bytes, mode)
}

/// Writes a file and makes the directories above it, whatever the umask.
fn put(to: &Path, bytes: &[u8], mode: u32) -> Result<(), Failure> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    fs::write(to, bytes)?;
    Ok(fs::set_permissions(to, fs::Permissions::from_mode(mode))?)
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        // Text takes all that is written.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// All files below a directory, in the order of their paths.
fn files_below(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let (mut found, mut waiting) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(dir)? {
            let path = entry?.path();
            match path.is_dir() && !path.is_symlink() {
                true => waiting.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}

/// `SHA256SUMS`, as sha256sum(1) checks it.
fn write_sums(out: &Path) -> Result<(), Failure> {
    let mut sums = String::new();
    for path in files_below(out)? {
        let name = path.strip_prefix(out)?.display();
        writeln!(sums, "{}  {name}", hex(&fs::read(&path)?))?;
    }
    Ok(fs::write(out.join("SHA256SUMS"), sums)?)
}
