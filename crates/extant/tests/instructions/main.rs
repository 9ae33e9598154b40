//! Instructions of the calls that users make most, as valgrind counts them: a count depends on the
//! code alone, not on the machine's load, so a change that makes one of them dearer is seen.
//!
//! `EXTANT_BLESS=1 cargo test --workspace --test instructions` writes `counts.txt`; without the
//! variable the test compares. Counts are those of the profile of tests, and of the programs that
//! the first line names.

mod paths;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use extant_testkit::{Scratch, Tool, skip, tool};
use paths::PATHS;

/// Where the process that is counted has its files.
const CHILD: &str = "EXTANT_INSTRUCTIONS";
/// The function of which each call begins another count, by the name that valgrind shows.
const MARK: &str = "instructions::paths::mark*";
/// Part by which a count may differ from the recorded one.
const BOUND: f64 = 0.03;
const RECORDED: &str = include_str!("counts.txt");

#[test]
fn paths_take_the_instructions_that_are_recorded() {
    if let Some(place) = std::env::var_os(CHILD) {
        return paths::run(place.as_ref());
    }
    let Some(valgrind) = tool("valgrind") else { skip!("valgrind is not installed") };
    let Some(rustc) = tool("rustc") else { skip!("no rustc in PATH: counts are of one version") };
    let environment = environment(&rustc, &valgrind);
    let is_blessed = std::env::var_os("EXTANT_BLESS").is_some();
    if !is_blessed && RECORDED.lines().next() != Some(&environment) {
        skip!("the counts are not of {environment}");
    }
    let counts = counted(&valgrind);
    if is_blessed {
        let mut text = format!("{environment}\n");
        for (name, count) in &counts {
            writeln!(text, "{name} {count}").unwrap();
        }
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/instructions/counts.txt");
        std::fs::write(file, text).unwrap();
        return;
    }
    let mut differing = String::new();
    for (name, now) in &counts {
        let recorded = recorded(name).unwrap_or_else(|| panic!("{name} is not recorded"));
        let ratio = *now as f64 / recorded as f64;
        println!("{name}: {now}, recorded {recorded}: {ratio:.3}");
        if (ratio - 1.0).abs() > BOUND {
            writeln!(differing, "{name}: {now}, recorded {recorded}: {ratio:.3}").unwrap();
        }
    }
    assert!(
        differing.is_empty(),
        "instructions of a call:\n{differing}`EXTANT_BLESS=1 cargo test --workspace --test \
         instructions` takes the change"
    );
}

/// Counts depend on the code, on the compiler, on the C library, whose functions differ by the
/// processor's features, and on valgrind, which shows these features.
fn environment(rustc: &Tool, valgrind: &Tool) -> String {
    let version = rustc.text(["-Vv"]).expect("it has a version");
    let line = |name: &str| version.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    let library = tool("getconf").and_then(|getconf| getconf.text(["GNU_LIBC_VERSION"]).ok());
    let library = library.unwrap_or_default();
    let valgrind = valgrind.text(["--version"]).expect("it has a version");
    let (release, host) = (line("release: "), line("host: "));
    format!("rustc {release} {host}, {}, {}", library.trim(), valgrind.trim())
}

fn recorded(name: &str) -> Option<u64> {
    RECORDED.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Instructions of one call of each path.
fn counted(valgrind: &Tool) -> BTreeMap<&'static str, u64> {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let mut command = valgrind.command_within(600);
    command.arg("--tool=callgrind").arg(format!("--dump-before={MARK}"));
    command.arg(format!("--callgrind-out-file={}", out.display()));
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "paths_take_the_instructions_that_are_recorded", "--test-threads=1"]);
    let output = command.env(CHILD, scratch.path()).output().expect("valgrind runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    // Each path has a count of what was prepared before the one of its calls.
    let counts = PATHS.iter().enumerate().map(|(at, path)| {
        let part = std::fs::read_to_string(out.with_extension((2 * at + 2).to_string()));
        let part = part.expect("valgrind writes a count for each mark");
        let total = part.lines().find_map(|line| line.strip_prefix("totals: "));
        let total: u64 = total.and_then(|total| total.parse().ok()).expect("a total");
        (path.name, total / path.calls as u64)
    });
    counts.collect()
}
