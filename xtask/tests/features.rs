//! The features of the library and of the program: each can be left out, and what it brings is
//! counted.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use extant_testkit::skip;

/// Packages with features, and the features that each has.
const FEATURES: [(&str, &[&str]); 3] = [
    ("extant-storage", &["crypt", "vm"]),
    ("extant", &["crypt", "mount", "sandbox", "sim", "vm"]),
    ("extant-cli", &["crypt", "lab", "mount", "prompt", "sim", "vm"]),
];

/// The page with the number of crates below each package.
const PAGE: &str = "docs/src/guide/library.md";

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(workspace());
    cargo
}

/// Without default features, and with each one alone, no crate has a warning.
#[test]
fn every_feature_alone_compiles_without_warnings() {
    if std::env::var_os("EXTANT_SLOW").is_none() {
        skip!("builds the workspace for {} sets of features: EXTANT_SLOW=1", sets().count());
    }
    for (package, feature) in sets() {
        let mut clippy = cargo();
        clippy.args(["clippy", "--package", package, "--all-targets", "--no-default-features"]);
        clippy.args(["--features", feature, "--", "--deny", "warnings"]);
        let output = clippy.output().expect("cargo runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{package} with `{feature}`:\n{said}");
    }
}

fn sets() -> impl Iterator<Item = (&'static str, &'static str)> {
    FEATURES.into_iter().flat_map(|(package, features)| {
        std::iter::once("").chain(features.iter().copied()).map(move |feature| (package, feature))
    })
}

/// The table of the page has a row for each set of features, with the number of crates that
/// `cargo tree` lists.
#[test]
fn the_guide_counts_the_crates_of_each_feature() {
    let page = fs::read_to_string(workspace().join(PAGE)).expect("the page");
    let all = |(package, features): (_, &[&str])| (package, features.join(","));
    let rows = sets().map(|(package, feature)| (package, feature.to_owned()));
    let rows = rows.chain(FEATURES.into_iter().map(all));
    for (package, feature) in rows.filter(|(package, _)| *package != "extant-storage") {
        let mut tree = cargo();
        tree.args(["tree", "--offline", "--package", package, "--edges", "normal"]);
        tree.args(["--prefix", "none", "--format", "{p}"]);
        tree.args(["--no-default-features", "--features", &feature]);
        let output = tree.output().expect("cargo runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines = String::from_utf8(output.stdout).expect("text");
        // A crate that was listed before is marked.
        let crates: BTreeSet<&str> =
            lines.lines().map(|line| line.trim_end_matches(" (*)")).collect();
        // The package itself is one of them.
        let shown = match feature.as_str() {
            "" => "none".to_owned(),
            several if several.contains(',') => "all".to_owned(),
            one => format!("`{one}`"),
        };
        let row = format!("| `{package}` | {shown} | {} |", crates.len() - 1);
        assert!(page.lines().any(|line| line == row), "{PAGE} lacks the row\n{row}");
    }
}
