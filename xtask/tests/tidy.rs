//! Rules for every file of the project.

use std::fs;
use std::path::{Path, PathBuf};

/// A file that is longer holds more than one thing.
const LONGEST: usize = 800;
/// Rooms where `unsafe` is allowed with its proof; everywhere else it is forbidden.
const UNSAFE_ROOMS: [&str; 4] = ["bindings/c", "crates/device", "crates/mount", "crates/runtime"];

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace")
}

/// Every file of the project: not what git keeps, not what cargo builds.
fn files() -> Vec<PathBuf> {
    let (mut files, mut waiting) = (Vec::new(), vec![workspace().to_owned()]);
    while let Some(dir) = waiting.pop() {
        for entry in fs::read_dir(&dir).expect("a readable directory") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let is_ours = !matches!(name, ".git" | "target" | "report") && !name.ends_with(".img");
            if path.is_dir() && is_ours {
                waiting.push(path);
            } else if path.is_file() && is_ours {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

fn with_extension(extension: &str) -> impl Iterator<Item = (PathBuf, String)> {
    let has = move |path: &PathBuf| path.extension().and_then(|it| it.to_str()) == Some(extension);
    files().into_iter().filter(has).map(|path| {
        let text = fs::read_to_string(&path).expect("text");
        (path, text)
    })
}

/// Rust files that ship: not tests.
fn sources() -> impl Iterator<Item = (PathBuf, String)> {
    let is_tests = |part: &std::ffi::OsStr| part == "tests" || part == "tests.rs";
    let is_test = move |path: &Path| path.components().any(|part| is_tests(part.as_os_str()));
    with_extension("rs").filter(move |(path, _)| !is_test(path))
}

/// Fails with every complaint at once.
fn expect_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

fn shown(path: &Path) -> String {
    path.strip_prefix(workspace()).unwrap_or(path).display().to_string()
}

#[test]
fn no_file_is_longer_than_its_meaning() {
    let lines = sources().map(|(path, text)| (path, text.lines().count()));
    let long = lines.filter(|(_, count)| *count > LONGEST);
    expect_none(long.map(|(path, count)| format!("{}: {count} lines", shown(&path))).collect());
}

#[test]
fn every_source_file_begins_with_its_doc() {
    // A table that is included cannot have an inner doc.
    let bare = sources().filter(|(_, text)| !text.starts_with("//"));
    expect_none(bare.map(|(path, _)| format!("{}: no module doc", shown(&path))).collect());
}

#[test]
fn unsafe_code_is_forbidden_where_it_has_no_business() {
    let mut complaints = Vec::new();
    for (path, text) in sources() {
        let root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        let name = shown(&path);
        let may = UNSAFE_ROOMS.iter().any(|room| name.starts_with(&format!("{room}/")));
        let wanted = if may { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if root && !text.contains(wanted) {
            complaints.push(format!("{name}: no {wanted}"));
        }
    }
    expect_none(complaints);
}

#[test]
fn nothing_is_left_unfinished_or_silenced() {
    // Written in two parts, or this file would complain of itself.
    let marks = [
        ("todo", "!("),
        ("unimplemented", "!("),
        ("dbg", "!("),
        ("FIX", "ME"),
        ("XX", "X "),
        ("allow(dead", "_code)"),
        ("allow(unus", "ed"),
        ("#[ign", "ore"),
    ];
    let mut complaints = Vec::new();
    for (path, text) in with_extension("rs") {
        for (number, line) in (1..).zip(text.lines()) {
            for (head, tail) in marks {
                if line.contains(&format!("{head}{tail}")) {
                    complaints.push(format!("{}:{number}: {head}{tail}", shown(&path)));
                }
            }
        }
    }
    expect_none(complaints);
}

#[test]
fn nothing_names_one_machine_or_its_registries() {
    let paths = ["wo", "fa", "ro", "ho"].into_iter().zip(["rk/", "rm/", "ot/", "me/"]);
    let places = paths.map(|(head, tail)| format!("/{head}{tail}")).collect::<Vec<_>>();
    let hosts = ["index.", "static."].map(|part| format!("{part}crates.io"));
    let mut complaints = Vec::new();
    for path in files() {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (number, line) in (1..).zip(text.lines()) {
            let place = places.iter().find(|place| begins_a_path(line, place));
            let host = hosts.iter().find(|host| line.contains(*host));
            if let Some(what) = place.or(host) {
                complaints.push(format!("{}:{number}: {what}", shown(&path)));
            }
        }
    }
    expect_none(complaints);
}

/// Whether `place` stands in `line` as an absolute path, not within another path or a URL.
fn begins_a_path(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        before.is_none_or(|it| !it.is_alphanumeric() && !matches!(it, '.' | '}' | '/' | ':' | '-'))
    })
}

#[test]
fn dependencies_come_from_the_one_registry() {
    let lock = fs::read_to_string(workspace().join("Cargo.lock")).expect("Cargo.lock is kept");
    let registry = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let sources = lock.lines().filter(|line| line.starts_with("source = "));
    expect_none(sources.filter(|line| *line != registry).map(str::to_owned).collect());
}

#[test]
fn the_papers_are_there() {
    let papers = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "docs/src/reference/format.md",
        "docs/src/performance/results.md",
        "docs/src/SUMMARY.md",
        ".ci/run",
    ];
    let missing = papers.iter().filter(|name| !workspace().join(name).is_file());
    expect_none(missing.map(|name| format!("{name} is missing")).collect());
}

#[test]
fn links_between_papers_lead_somewhere() {
    let mut complaints = Vec::new();
    for (path, text) in with_extension("md") {
        let dir = path.parent().expect("a file lies in a directory");
        for link in links(&text) {
            if link.contains("://") {
                continue;
            }
            let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if target.is_empty() { path.clone() } else { dir.join(target) };
            let has_heading = || match fs::read_to_string(&target) {
                Ok(text) => headings(&text).any(|it| it == anchor),
                Err(_) => false,
            };
            if !target.exists() || (!anchor.is_empty() && !has_heading()) {
                complaints.push(format!("{}: {link} leads nowhere", shown(&path)));
            }
        }
    }
    expect_none(complaints);
}

/// The names by which links find the headings of a page: lower case, hyphens for spaces, no signs.
fn headings(text: &str) -> impl Iterator<Item = String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let is_kept = |it: &char| it.is_alphanumeric() || matches!(it, '-' | '_' | ' ');
    lines.map(move |line| {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        title.chars().filter(is_kept).map(|it| if it == ' ' { '-' } else { it }).collect()
    })
}

#[test]
fn every_page_of_the_book_is_in_its_summary() {
    let src = workspace().join("docs/src");
    let summary = fs::read_to_string(src.join("SUMMARY.md")).expect("the summary");
    let named: Vec<_> = links(&summary).map(|link| src.join(link)).collect();
    let pages = with_extension("md").map(|(path, _)| path).filter(|path| path.starts_with(&src));
    let lost = pages.filter(|path| !path.ends_with("SUMMARY.md") && !named.contains(path));
    expect_none(lost.map(|path| format!("{}: not in the summary", shown(&path))).collect());
}

/// Targets of `[text](target)`.
fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split("](").skip(1).filter_map(|rest| rest.split([')', ' ', '\n']).next())
}

#[test]
fn chores_in_the_papers_exist() {
    let help = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("--help")
        .output()
        .expect("xtask was built");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    let known = |word: &str| {
        help.lines().any(|line| line.strip_prefix("  ").is_some_and(|it| it.starts_with(word)))
    };
    let mut complaints = Vec::new();
    for (path, text) in with_extension("md") {
        for rest in text.split("cargo xtask ").skip(1) {
            let word = rest.split(|it: char| !it.is_ascii_lowercase()).next().unwrap_or_default();
            if !word.is_empty() && !known(word) {
                complaints.push(format!("{}: cargo xtask {word}", shown(&path)));
            }
        }
    }
    expect_none(complaints);
}

#[test]
fn every_crate_takes_the_lints_and_versions_of_the_workspace() {
    let mut complaints = Vec::new();
    for (path, text) in with_extension("toml").filter(|(path, _)| path.ends_with("Cargo.toml")) {
        if path.parent() == Some(workspace()) {
            continue;
        }
        for wanted in ["[lints]\nworkspace = true", "edition.workspace = true", "license.workspace"]
        {
            if !text.contains(wanted) {
                complaints.push(format!("{}: {wanted:?} is missing", shown(&path)));
            }
        }
        // A crate that depends on this one is named without a version: packages leave it out. The
        // package of xtask needs that of the testkit, which those of all others leave out.
        let is_excepted = |line: &&str| {
            line.starts_with("extant-sim.path")
                || line.starts_with("extant-testkit = ") && path.ends_with("xtask/Cargo.toml")
        };
        let own = text.lines().filter(|line| !is_excepted(line)).find(|line| {
            line.contains("version = \"")
                || line.contains("git = \"")
                || line.contains("path = \"..")
        });
        if let Some(line) = own {
            complaints.push(format!("{}: {line}: belongs into the workspace", shown(&path)));
        }
    }
    expect_none(complaints);
}
