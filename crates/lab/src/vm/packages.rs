//! Debian's packages, fetched by apt and opened by dpkg: nothing is installed.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{Trying, VmError};

/// Packages that apt-cache leaves out of dependencies.
const ONLY_DEPENDS: [&str; 6] = [
    "--no-recommends",
    "--no-suggests",
    "--no-conflicts",
    "--no-breaks",
    "--no-replaces",
    "--no-enhances",
];

/// So that a machine without network fails soon.
const SOON: [&str; 6] = [
    "-o",
    "Acquire::Retries=1",
    "-o",
    "Acquire::http::Timeout=30",
    "-o",
    "Acquire::https::Timeout=30",
];
/// How long it is waited for packages that do not come, all of them together.
const PATIENCE: Duration = Duration::from_secs(120);

/// Where libraries lie in a package.
const LIBRARY_DIRS: [&str; 4] =
    ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu", "lib", "usr/lib"];

/// The direct dependencies of a package.
pub(super) fn depends(package: &str) -> Result<Vec<String>, VmError> {
    let mut command = Command::new("apt-cache");
    command.arg("depends").args(ONLY_DEPENDS).arg(package);
    Ok(depends_in(&said(&mut command)?))
}

/// Lines `  Depends: NAME`, with a bar before those that have alternatives.
fn depends_in(text: &str) -> Vec<String> {
    let names = text.lines().filter_map(|line| {
        let (kind, name) = line.trim_start_matches([' ', '|']).split_once(": ")?;
        let is_name = !name.starts_with('<');
        (matches!(kind, "Depends" | "PreDepends") && is_name).then(|| name.trim().to_owned())
    });
    names.collect()
}

/// Libraries that packages need and this machine does not have.
pub(super) fn libraries_of(packages: &[&str]) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting: Vec<String> = packages.iter().map(|name| (*name).to_owned()).collect();
    while let Some(package) = waiting.pop() {
        // A missing package is reported when it is fetched.
        for name in depends(&package).unwrap_or_default() {
            let is_library = name.starts_with("lib") || name.starts_with("zlib");
            if is_library && !is_installed(&name) && found.insert(name.clone()) {
                waiting.push(name);
            }
        }
    }
    found
}

fn is_installed(package: &str) -> bool {
    let mut command = Command::new("dpkg-query");
    command.args(["-W", "-f", "${db:Status-Status}", package]);
    said(&mut command).is_ok_and(|status| status == "installed")
}

/// Fetches packages into a directory; those that could not be had, with the reason.
pub(super) fn fetch(names: &[String], into: &Path) -> Result<BTreeMap<String, String>, VmError> {
    fs::create_dir_all(into).trying(into.display())?;
    let download = |names: &[String]| {
        let mut command = Command::new("apt-get");
        said(command.arg("-q").args(SOON).arg("download").args(names).current_dir(into)).map(drop)
    };
    let mut missing = BTreeMap::new();
    if download(names).is_ok() {
        return Ok(missing);
    }
    let mut waited = Duration::ZERO;
    for name in names {
        let begin = Instant::now();
        let error = match waited < PATIENCE {
            true => download(std::slice::from_ref(name)).err(),
            false => Some(VmError(format!("timed out after {} s", waited.as_secs()))),
        };
        if let Some(error) = error {
            missing.insert(name.clone(), error.0);
            waited += begin.elapsed();
        }
    }
    Ok(missing)
}

/// The file of a package that was fetched.
pub(super) fn file_of(package: &str, dir: &Path) -> Option<PathBuf> {
    let begins = format!("{package}_");
    let mut files = fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path());
    files.find(|path| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&begins))
    })
}

/// Unpacks a package.
pub(super) fn unpack(file: &Path, into: &Path) -> Result<(), VmError> {
    said(Command::new("dpkg-deb").arg("-x").arg(file).arg(into)).map(drop)
}

/// Hands each file of a package on that is wanted, by its path without `./`.
pub(super) fn each_file(
    package: &Path,
    is_wanted: impl Fn(&str) -> bool,
    mut take: impl FnMut(String, Vec<u8>),
) -> Result<(), VmError> {
    let mut command = Command::new("dpkg-deb");
    command.arg("--fsys-tarfile").arg(package);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().trying("dpkg-deb")?;
    let out = child.stdout.take().expect("it was asked for");
    let read = || {
        let mut archive = tar::Archive::new(out);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = entry.path()?.to_string_lossy().into_owned();
            let path = path.trim_start_matches("./").to_owned();
            if entry.header().entry_type().is_file() && is_wanted(&path) {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes)?;
                take(path, bytes);
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let outcome = read();
    let _ = child.kill();
    let _ = child.wait();
    outcome.trying(package.display())
}

/// A library as a program names it, and where it is.
pub(super) type Library = (String, PathBuf);

/// The libraries of a program, directly and through others, from unpacked packages before this
/// machine.
pub(super) fn libraries(program: &Path, root: &Path) -> Result<Vec<Library>, VmError> {
    let dirs = LIBRARY_DIRS.map(|dir| root.join(dir).to_string_lossy().into_owned()).join(":");
    let mut command = Command::new("ldd");
    command.arg(program).env("LD_LIBRARY_PATH", dirs).env("LC_ALL", "C");
    let output = command.stdin(Stdio::null()).output();
    let output = output.trying("ldd")?;
    let text = String::from_utf8_lossy(&output.stdout);
    match output.status.success() {
        true => libraries_in(&text),
        // Linked with nothing.
        false if text.is_empty() || text.contains("not a dynamic") => Ok(Vec::new()),
        false => Err(VmError(format!("ldd: {}: {}", program.display(), text.trim()))),
    }
}

/// Lines `NAME => PATH (ADDRESS)`; the loader has no arrow, and the kernel's library has no path.
fn libraries_in(text: &str) -> Result<Vec<Library>, VmError> {
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [name, "=>", "not", "found"] => {
                return Err(VmError(format!("requires {name}, which was not found")));
            }
            [name, "=>", path, ..] | [name @ path, ..] if path.starts_with('/') => {
                found.push((name.to_owned(), path.into()));
            }
            _ => {}
        }
    }
    Ok(found)
}

/// Runs a command that must succeed; returns its output, in English, for its words are searched.
pub(super) fn said(command: &mut Command) -> Result<String, VmError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let words: Vec<String> =
        command.get_args().take(2).map(OsStr::to_string_lossy).map(Into::into).collect();
    let output = command.env("LC_ALL", "C").stdin(Stdio::null()).output().trying(&name)?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let last = complaint.lines().rev().find(|line| !line.trim().is_empty());
    Err(VmError(format!("{name} {}: {}", words.join(" "), last.unwrap_or("it failed"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_read_from_apts_lines() {
        let text = "nilfs-tools\n  Depends: libblkid1\n |Depends: a\n  PreDepends: libc6\n  \
                    Depends: <virtual>\n    provider\n  Recommends: no\n";
        assert_eq!(depends_in(text), ["libblkid1", "a", "libc6"]);
    }

    #[test]
    fn commands_speak_english() {
        let printed = said(Command::new("sh").args(["-c", "echo $LC_ALL"]).env("LC_ALL", "de_DE"));
        assert_eq!(printed, Ok("C\n".to_owned()));
        let failed = said(Command::new("sh").args(["-c", "echo why >&2; echo; exit 3"]));
        assert_eq!(failed.expect_err("it fails").0, "sh -c echo why >&2; echo; exit 3: why");
    }

    #[test]
    fn libraries_are_read_from_ldds_lines() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/libc.so.6 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        let of = |name: &str, path: &str| (name.to_owned(), PathBuf::from(path));
        assert_eq!(
            libraries_in(text).expect("libraries"),
            [of("libc.so.6", "/lib/libc.so.6"), of("/lib64/ld.so.2", "/lib64/ld.so.2")]
        );
        let error = libraries_in("\tlibx.so => not found\n").expect_err("a gap").0;
        assert_eq!(error, "requires libx.so, which was not found");
    }
}
