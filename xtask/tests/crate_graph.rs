//! Which crate may depend on which: downwards only, as ARCHITECTURE.md draws the rooms.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Every room from the bottom up, with exactly the rooms that it uses. Rooms side by side do not
/// use each other: a checker that trusts the writer checks nothing.
const ROOMS: [(&str, &[&str]); 22] = [
    ("extant-ondisk", &[]),
    ("extant-layout", &["extant-ondisk"]),
    ("extant-runtime", &[]),
    ("extant-device", &["extant-runtime"]),
    ("extant-sim", &["extant-runtime", "extant-device"]),
    ("extant-nbd", &["extant-runtime", "extant-device"]),
    ("extant-storage", &["extant-runtime", "extant-device", "extant-nbd"]),
    ("extant-offline", &["extant-ondisk", "extant-layout", "extant-runtime", "extant-device"]),
    (
        "extant-journal",
        &["extant-ondisk", "extant-layout", "extant-runtime", "extant-device", "extant-offline"],
    ),
    (
        "extant-evidence",
        &["extant-ondisk", "extant-runtime", "extant-device", "extant-offline", "extant-journal"],
    ),
    ("extant-reader", BELOW_READER),
    (
        "extant-engine",
        &[
            "extant-ondisk",
            "extant-runtime",
            "extant-device",
            "extant-offline",
            "extant-journal",
            "extant-reader",
        ],
    ),
    // Neither the checker nor the image tools know the engine.
    (
        "extant-check",
        &[
            "extant-ondisk",
            "extant-layout",
            "extant-runtime",
            "extant-device",
            "extant-offline",
            "extant-journal",
            "extant-evidence",
        ],
    ),
    // `reader` for export only: see `image_uses_reader_for_export_only`.
    (
        "extant-image",
        &[
            "extant-ondisk",
            "extant-layout",
            "extant-runtime",
            "extant-device",
            "extant-storage",
            "extant-offline",
            "extant-journal",
            "extant-reader",
        ],
    ),
    (
        "extant-mount",
        &[
            "extant-ondisk",
            "extant-runtime",
            "extant-device",
            "extant-storage",
            "extant-reader",
            "extant-engine",
        ],
    ),
    (
        "extant",
        &[
            "extant-ondisk",
            "extant-layout",
            "extant-runtime",
            "extant-device",
            "extant-sim",
            "extant-nbd",
            "extant-storage",
            "extant-offline",
            "extant-journal",
            "extant-reader",
            "extant-engine",
            "extant-check",
            "extant-image",
            "extant-mount",
        ],
    ),
    ("extant-c", &["extant"]),
    ("extant-python", &["extant"]),
    ("extant-lab", &["extant"]),
    ("extant-cli", &["extant", "extant-lab"]),
    ("extant-testkit", &[]),
    ("xtask", &["extant-testkit"]),
];

const BELOW_READER: &[&str] = &[
    "extant-ondisk",
    "extant-layout",
    "extant-runtime",
    "extant-device",
    "extant-offline",
    "extant-journal",
];

/// Rooms whose tests may use each other: makers of images and judges of them. Tests of any room
/// may use all rooms below it.
const SIDE_BY_SIDE: [&str; 5] =
    ["extant-reader", "extant-engine", "extant-check", "extant-image", "extant-mount"];

/// Crates that any test may use: tools, and devices that fail or lose power.
const FOR_TESTS: [&str; 2] = ["extant-testkit", "extant-sim"];

struct Edge {
    from: String,
    to: String,
    for_tests: bool,
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// The edges between crates of the workspace, by cargo's own account.
fn edges() -> (Vec<String>, Vec<Edge>) {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(workspace())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let list = |value: &Value| value.as_array().expect("a list").clone();
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let packages = list(&metadata["packages"]);
    let names: Vec<String> = packages.iter().map(name).collect();
    let mut edges = Vec::new();
    for package in &packages {
        for dependency in list(&package["dependencies"]) {
            if names.contains(&name(&dependency)) {
                let for_tests = dependency["kind"].as_str() == Some("dev");
                edges.push(Edge { from: name(package), to: name(&dependency), for_tests });
            }
        }
    }
    (names, edges)
}

#[test]
fn every_crate_has_a_place_among_the_rooms() {
    for name in edges().0 {
        assert!(ROOMS.iter().any(|(room, _)| *room == name), "{name} has no place");
    }
}

#[test]
fn edges_lead_downwards_only() {
    let allowed = BTreeMap::from(ROOMS);
    let height = |name: &str| ROOMS.iter().position(|(room, _)| *room == name);
    for Edge { from, to, for_tests } in edges().1 {
        let downwards = allowed[from.as_str()].contains(&to.as_str());
        let test_help = FOR_TESTS.contains(&to.as_str())
            || height(&to) < height(&from)
            || (SIDE_BY_SIDE.contains(&to.as_str()) && SIDE_BY_SIDE.contains(&from.as_str()));
        assert!(downwards || (for_tests && test_help), "{from} must not use {to}");
    }
}

#[test]
fn the_table_has_no_edge_that_is_not_used() {
    let used: Vec<_> = edges().1.into_iter().filter(|edge| !edge.for_tests).collect();
    for (room, below) in ROOMS {
        for other in below {
            let is_used = used.iter().any(|edge| edge.from == room && edge.to == *other);
            assert!(is_used, "{room} does not use {other}");
        }
    }
}

#[test]
fn the_test_kit_is_for_tests() {
    for Edge { from, to, for_tests } in edges().1 {
        assert!(to != "extant-testkit" || for_tests || from == "xtask", "{from} ships {to}");
    }
}

#[test]
fn image_uses_reader_for_export_only() {
    for path in rust_files(&workspace().join("crates/image/src")) {
        let is_export = path
            .components()
            .any(|part| part.as_os_str().to_str().is_some_and(|name| name.starts_with("export")));
        let text = std::fs::read_to_string(&path).expect("sources are text");
        let uses = text.contains("extant_reader");
        assert!(is_export || !uses, "{} uses the reader", path.display());
    }
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut waiting) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let list = std::fs::read_dir(&path).expect("a readable directory");
            waiting.extend(list.map(|entry| entry.expect("a readable entry").path()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
