//! The crates as cargo packages them for a registry. `EXTANT_SLOW=1` builds each package from what
//! is in it.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;

use extant_testkit::{Scratch, skip};
use flate2::read::GzDecoder;

/// Packages that are not published: parts of the others, or with an installer of their own.
const NOT_PUBLISHED: [&str; 3] = ["extant-c", "extant-python", "xtask"];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Makes all packages in a target directory; what cargo says.
fn package(target: &Path, words: &[&str]) -> String {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["package", "--workspace", "--allow-dirty", "--locked"]);
    cargo.args(words).arg("--target-dir").arg(target).current_dir(workspace());
    let output = cargo.output().expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    said
}

/// The files of a package by their paths within it.
fn files_of(package: &Path) -> Vec<(String, String)> {
    let packed = GzDecoder::new(File::open(package).expect("a package"));
    let mut archive = tar::Archive::new(packed);
    let mut files = Vec::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("a file");
        let path = entry.path().expect("a path").display().to_string();
        let (_, name) = path.split_once('/').expect("all is in one directory");
        let name = name.to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).expect("its content");
        files.push((name, String::from_utf8_lossy(&bytes).into_owned()));
    }
    files
}

#[test]
fn packages_have_licences_a_readme_and_what_docs_rs_reads() {
    let scratch = Scratch::new();
    let said = package(scratch.path(), &["--no-verify", "--offline"]);
    assert!(!said.contains("warning: manifest has no"), "{said}");
    let mut published = BTreeSet::new();
    for entry in fs::read_dir(scratch.join("package")).expect("packages") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(concat!("-", env!("CARGO_PKG_VERSION"), ".crate"))
        else {
            continue;
        };
        if NOT_PUBLISHED.contains(&name) {
            continue;
        }
        published.insert(name.to_owned());
        let files = files_of(&path);
        let text = |wanted: &str| {
            let found = files.iter().find(|(name, _)| name == wanted);
            found.unwrap_or_else(|| panic!("{name}: no {wanted}")).1.as_str()
        };
        assert!(text("LICENSE-MIT").contains("Permission is hereby granted"), "{name}");
        assert!(text("LICENSE-APACHE").contains("Apache License"), "{name}");
        assert!(text("README.md").starts_with("# "), "{name}");
        let manifest = text("Cargo.toml");
        for wanted in [
            "description = ",
            "keywords = ",
            "categories = ",
            "license = \"MIT OR Apache-2.0\"",
            "repository = ",
            "rust-version = ",
            "[package.metadata.docs.rs]",
        ] {
            assert!(manifest.lines().any(|it| it.starts_with(wanted)), "{name}: no {wanted}");
        }
        let needs_tools = manifest.contains("extant-testkit") && name != "extant-testkit";
        assert!(!needs_tools, "{name} needs the tools of tests");
        let test = files.iter().find(|(name, _)| name.starts_with("tests/"));
        assert!(test.is_none(), "{name}: {test:?}");
        // crates.io takes ten mebibytes.
        assert!(path.metadata().expect("a file").len() < 2 << 20, "{name} is large");
    }
    let crates = fs::read_dir(workspace().join("crates")).expect("crates");
    assert_eq!(published.len(), crates.count(), "{published:?}");
}

#[test]
fn each_package_builds_from_what_is_in_it() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("builds all crates again: EXTANT_SLOW=1");
    }
    let scratch = Scratch::new();
    let said = package(scratch.path(), &[]);
    for name in ["extant", "extant-testkit", "xtask"] {
        assert!(said.contains(&format!("Verifying {name} v")), "{said}");
    }
}
