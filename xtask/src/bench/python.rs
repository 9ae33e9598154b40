//! The library for Python: all files of an image, next to another reader and next to `extant cp`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::run::{Side, Step};
use super::{Case, Pair, Setting};
use crate::{Failure, bindings, machine};

/// The files of the image.
const FILES: u64 = 10_000;
/// The other reader, with the version that was tried.
const DISSECT: &str = "dissect.extfs==3.15";

/// The cases, in the order of docs/src/performance/results.md.
pub(super) fn all() -> Vec<Case> {
    vec![
        Case {
            name: "python-read",
            what: "all files read through the wheel for Python",
            peer: "dissect.extfs",
            bar: Some(0.1),
            prepare: Box::new(next_to_dissect),
        },
        Case {
            name: "python-cp",
            what: "all files read through the wheel for Python",
            peer: "extant cp -r",
            bar: Some(1.5),
            prepare: Box::new(next_to_cp),
        },
    ]
}

fn scripts() -> PathBuf {
    machine::workspace().join("bindings/python/bench")
}

fn must(command: &mut Command) -> Result<(), Failure> {
    match command.output()? {
        output if output.status.success() => Ok(()),
        output => Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

/// An environment of Python with one package, which pip takes from its index or from a file.
fn environment(dir: PathBuf, package: &Path) -> Result<PathBuf, Failure> {
    let python = dir.join("bin/python");
    if !python.is_file() {
        must(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        must(install.arg(package))?;
    }
    Ok(python)
}

/// The side that reads through the wheel, and the image.
fn ours(setting: &Setting) -> Result<(Side, PathBuf), Failure> {
    let wheels = setting.dir.join("wheels");
    if !wheels.is_dir() {
        bindings::build_wheel(&wheels)?;
    }
    let wheel = fs::read_dir(&wheels)?.next().ok_or("maturin made no wheel")??.path();
    let python = environment(setting.dir.join("wheel"), &wheel)?;
    let image = setting.dir.join("python.img");
    if !image.is_file() {
        let count = (FILES / setting.shrink).max(100).to_string();
        let mut make = Command::new(&python);
        must(make.arg(scripts().join("make_tree.py")).arg(&image).arg(count))?;
    }
    let script = r#"exec "$1" "$2" extant "$3""#;
    let reader = scripts().join("read_all.py");
    Ok((Side::of(script, &[&python, &reader, &image], None), image))
}

fn pair(setting: &Setting, ours: Side, theirs: Side) -> Pair {
    let count = (FILES / setting.shrink).max(100);
    Pair { ours, theirs: Some(theirs), input: format!("{count} files"), _held: Vec::new() }
}

fn next_to_dissect(setting: &Setting) -> Result<Pair, Failure> {
    let (ours, image) = ours(setting)?;
    let python = environment(setting.dir.join("dissect"), Path::new(DISSECT))?;
    let script = r#"exec "$1" "$2" dissect "$3""#;
    let reader = scripts().join("read_all.py");
    let theirs = Side::of(script, &[&python, &reader, &image], None);
    Ok(pair(setting, ours, theirs))
}

fn next_to_cp(setting: &Setting) -> Result<Pair, Failure> {
    let (ours, image) = ours(setting)?;
    let copy = setting.dir.join("copy");
    let script = r#"exec "$1" cp -r "$2:/" "$3""#;
    let mut theirs = Side::of(script, &[&setting.extant, &image, &copy], None);
    theirs.before = vec![Step::of(r#"rm -rf -- "$1""#, &[&copy])];
    Ok(pair(setting, ours, theirs))
}
