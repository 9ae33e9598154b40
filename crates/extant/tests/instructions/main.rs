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
use std::sync::Mutex;

use extant_testkit::{Scratch, Tool, skip, tool};
use paths::{PATHS, Work};

/// What a child process is to do: a path's name, a number of calls and the place of its files.
const CHILD: &str = "EXTANT_INSTRUCTIONS";
/// Part by which a count may differ from the recorded one.
const BOUND: f64 = 0.03;
const RECORDED: &str = include_str!("counts.txt");

#[test]
fn paths_take_the_instructions_that_are_recorded() {
    if let Ok(order) = std::env::var(CHILD) {
        return paths::run(&Work::read(&order));
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

/// What counts depend on besides the code: the compiler, the C library, whose functions differ by
/// what the processor can do, and the valgrind that says what it can.
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

/// Instructions of one call of each path. Two of them are counted at once: the machines have two
/// processors.
fn counted(valgrind: &Tool) -> BTreeMap<&'static str, u64> {
    let counts = Mutex::new(BTreeMap::new());
    let left = Mutex::new(PATHS.iter());
    std::thread::scope(|scope| {
        let count = || {
            loop {
                let Some(path) = left.lock().unwrap().next() else { return };
                let scratch = Scratch::new();
                // What comes before the calls, and after them, is in both.
                let [once, twice] = [1, 2].map(|times| {
                    let place = scratch.join(&times.to_string());
                    std::fs::create_dir(&place).unwrap();
                    let calls = path.calls * times;
                    (path.prepare)(&place, calls);
                    instructions(valgrind, &Work { path, calls, most: path.calls * 2, place })
                });
                let each = (twice - once) / path.calls as u64;
                counts.lock().unwrap().insert(path.name, each);
            }
        };
        scope.spawn(count);
        scope.spawn(count);
    });
    counts.into_inner().unwrap()
}

/// Instructions of a process that does the work.
fn instructions(valgrind: &Tool, work: &Work) -> u64 {
    let mut command = valgrind.command_within(300);
    command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "paths_take_the_instructions_that_are_recorded", "--test-threads=1"]);
    let output = command.env(CHILD, work.to_string()).output().expect("valgrind runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{work}: {said}{}", String::from_utf8_lossy(&output.stdout));
    let refs = said.lines().find_map(|line| line.split_once("refs:")).expect("a count").1;
    refs.trim().replace(',', "").parse().expect("a number")
}
