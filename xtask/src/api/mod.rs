//! `cargo xtask api`: the public API as text, read from the sources, so that a change of it shows
//! in a diff. docs/api has what the library, its header and the Python package offer.

mod c;
mod expand;
mod names;
mod python;
mod rust;
mod sources;
mod tokens;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::{Failure, machine};

/// Where the texts are kept.
const DIR: &str = "docs/api";

/// Write the public API of the library, of libextant and of the Python package to docs/api
#[derive(clap::Args)]
pub(crate) struct Api {
    /// Write nothing: say what differs from docs/api
    #[arg(long)]
    check: bool,
    /// Print the API of this library instead, as extant-ondisk
    #[arg(long, value_name = "CRATE", conflicts_with = "check")]
    print: Option<String>,
}

impl Api {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let workspace = machine::workspace();
        if let Some(package) = self.print {
            print!("{}", of_crate(workspace, &package)?);
            return Ok(ExitCode::SUCCESS);
        }
        let mut differs = false;
        for (name, text) in texts(workspace)? {
            let path = workspace.join(DIR).join(name);
            let kept = fs::read_to_string(&path).unwrap_or_default();
            if kept == text {
                continue;
            }
            println!("{DIR}/{name}:");
            print!("{}", difference(&kept, &text));
            differs = true;
            if !self.check {
                fs::create_dir_all(workspace.join(DIR))?;
                fs::write(&path, text)?;
            }
        }
        if self.check && differs {
            return Err(format!("the API differs from {DIR}: cargo xtask api writes it").into());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// All texts with the names of their files.
fn texts(workspace: &Path) -> Result<[(&'static str, String); 3], Failure> {
    let read = |name: &str| {
        fs::read_to_string(workspace.join(name)).map_err(|error| format!("{name}: {error}"))
    };
    let header = read("bindings/c/include/extant.h")?;
    let versions = read("bindings/c/extant.map")?;
    Ok([
        ("rust.txt", of_crate(workspace, "extant")?),
        ("c.txt", c::text(&header, &versions)),
        ("python.txt", python::text(&workspace.join("bindings/python/python/extant_ext4"))?),
    ])
}

fn of_crate(workspace: &Path, package: &str) -> Result<String, Failure> {
    let sources = sources::Sources::read(workspace, package)?;
    rust::Lister::new(&sources, &package.replace('-', "_"))?.text()
}

/// The lines that only one of two texts has, in their order, with the sign of a diff.
fn difference(kept: &str, made: &str) -> String {
    let mut counts = BTreeMap::<&str, i64>::new();
    kept.lines().for_each(|line| *counts.entry(line).or_default() -= 1);
    made.lines().for_each(|line| *counts.entry(line).or_default() += 1);
    let mut said = String::new();
    for (text, sign, step) in [(kept, '-', 1), (made, '+', -1)] {
        for line in text.lines() {
            if let Some(count) = counts.get_mut(line).filter(|count| **count * step < 0) {
                *count += step;
                said.push(sign);
                said.push_str(line);
                said.push('\n');
            }
        }
    }
    said
}
