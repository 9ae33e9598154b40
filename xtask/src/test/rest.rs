//! The tests that `cargo xtask test --full` runs after an ordinary run: every test that it skipped
//! or shortened, for longer.

use super::Tally;
use crate::{Failure, machine};

/// Tests of one suite with an environment that makes them longer.
struct Part {
    name: &'static str,
    suite: &'static str,
    /// Only tests whose name contains this, where it is not empty.
    test: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

const SLOW: &[(&str, &str)] = &[("EXTANT_SLOW", "1")];

/// The longest last. Seeds differ from those of an ordinary run.
const PARTS: [Part; 32] = [
    Part {
        name: "power cuts of a volume in use that grows",
        suite: "live_growth",
        test: "a_power_cut",
        environment: SLOW,
    },
    Part { name: "power cuts of a resize", suite: "resize", test: "power_cut", environment: SLOW },
    Part {
        name: "every feature alone",
        suite: "features",
        test: "every_feature_alone",
        environment: SLOW,
    },
    Part {
        name: "what mmdebstrap makes",
        suite: "packages",
        test: "mke2fs_d_takes_what_mmdebstrap_makes",
        environment: SLOW,
    },
    Part {
        name: "65,000 directories",
        suite: "build",
        test: "shapes::subdirectories_past_the_count_of_links_need_dir_nlink",
        environment: SLOW,
    },
    Part {
        name: "every step of long histories fails",
        suite: "histories",
        test: "sweep::",
        environment: SLOW,
    },
    Part { name: "threads and memory of libextant", suite: "c", test: "", environment: SLOW },
    Part { name: "the wheel for Python", suite: "python", test: "a_wheel", environment: SLOW },
    Part {
        name: "the clusters of the examples",
        suite: "python",
        test: "a_cluster",
        environment: SLOW,
    },
    Part {
        name: "the manifest of the examples",
        suite: "python",
        test: "the_manifest",
        environment: SLOW,
    },
    Part {
        name: "the crates as packages",
        suite: "package",
        test: "each_package",
        environment: SLOW,
    },
    Part { name: "the packages", suite: "dist", test: "", environment: SLOW },
    Part { name: "every feature by tune", suite: "tune", test: "features_of", environment: SLOW },
    Part {
        name: "every row of mkfs options",
        suite: "mke2fs_rows",
        test: "volumes_of_the_table",
        environment: &[("EXTANT_ALL_ROWS", "1")],
    },
    Part {
        name: "true histories of damaged volumes",
        suite: "true_history",
        test: "",
        environment: &[("EXTANT_TRIALS", "10000"), ("EXTANT_SEED", "100000")],
    },
    Part {
        name: "bytes of reserved inodes",
        suite: "every_code",
        test: "reserved::",
        environment: &[("EXTANT_BYTES", "3000"), ("EXTANT_SEED", "2")],
    },
    Part {
        name: "repairs cut at every write",
        suite: "every_code",
        test: "cuts::",
        environment: SLOW,
    },
    Part {
        name: "64bit switched, cut at many writes",
        suite: "bit64",
        test: "a_power_cut",
        environment: SLOW,
    },
    kills(&[("EXTANT_SEED", "1")]),
    kills(&[("EXTANT_SEED", "2")]),
    kills(&[("EXTANT_SEED", "3")]),
    Part {
        name: "power cuts of more histories",
        suite: "histories",
        test: "power::cuts::",
        environment: &[("EXTANT_HISTORIES", "20"), ("EXTANT_SEED", "1")],
    },
    Part {
        name: "more random histories",
        suite: "histories",
        test: "random::",
        environment: &[("EXTANT_HISTORIES", "20"), ("EXTANT_SEED", "1")],
    },
    Part {
        name: "more threads at work",
        suite: "histories",
        test: "stress::",
        environment: &[("EXTANT_HISTORIES", "20"), ("EXTANT_SEED", "1")],
    },
    Part {
        name: "deleted files next to other tools",
        suite: "undelete",
        test: "",
        environment: SLOW,
    },
    Part {
        name: "the differential of repairs",
        suite: "differential",
        test: "",
        environment: &[("EXTANT_DIFFERENTIAL", "900s"), ("EXTANT_SEED", "2")],
    },
    Part {
        name: "fuzz harnesses",
        suite: "fuzz",
        test: "",
        // Milliseconds of each; both bounds go before those in the harness.
        environment: &[
            ("BOLERO_RANDOM_TEST_TIME_MS", "60000"),
            ("BOLERO_RANDOM_ITERATIONS", "4294967295"),
        ],
    },
    Part {
        name: "load on failing disks",
        suite: "mount",
        test: "mounting::load",
        environment: SLOW,
    },
    Part { name: "connections that are lost", suite: "reconnect", test: "", environment: SLOW },
    Part {
        name: "power cuts of qcow2 images",
        suite: "qcow2_writing",
        test: "after_a_power_cut",
        environment: SLOW,
    },
    Part {
        name: "sizes of random walks, and past 2^32 blocks",
        suite: "resize_walk",
        test: "",
        environment: &[("EXTANT_SLOW", "1"), ("EXTANT_SEED", "1000")],
    },
    Part { name: "random damage", suite: "random_damage", test: "", environment: SLOW },
];

const fn kills(environment: &'static [(&'static str, &'static str)]) -> Part {
    let test = "mounting::kills::a_server_killed_at_any_moment";
    Part { name: "servers killed at other moments", suite: "mount", test, environment }
}

pub(super) fn run(tally: &mut Tally) -> Result<(), Failure> {
    let mut lean = machine::cargo();
    lean.args(["test", "--package", "extant-cli", "--no-default-features", "unimplemented::"]);
    tally.part("the program without its features", |tally| tally.cargo_test(lean))?;
    let mut lean = machine::cargo();
    lean.args(["test", "--package", "extant", "--no-default-features", "schemes::"]);
    tally.part("the library without its features", |tally| tally.cargo_test(lean))?;
    let mut lean = machine::cargo();
    lean.args(["test", "--package", "extant-storage", "--no-default-features", "schemes::"]);
    tally.part("names of devices without encryption", |tally| tally.cargo_test(lean))?;
    let mut remote = machine::cargo();
    remote.args(["test", "--package", "extant-cli", "--features", "remote", "--test", "places"]);
    remote.envs(SLOW.iter().copied());
    tally.part("objects of servers, and TLS", |tally| tally.cargo_test(remote))?;
    let mut remote = machine::cargo();
    remote.args(["test", "--package", "extant-storage", "--features", "remote", "--lib"]);
    tally.part("the cache of objects", |tally| tally.cargo_test(remote))?;
    for part in &PARTS {
        tally.forget_skipped(part.suite, part.test);
        let mut test = machine::cargo();
        test.args(["test", "--workspace", "--no-fail-fast", "--test", part.suite]);
        if !part.test.is_empty() {
            test.arg(part.test);
        }
        test.envs(part.environment.iter().copied());
        tally.part(part.name, |tally| tally.cargo_test(test))?;
    }
    Ok(())
}
