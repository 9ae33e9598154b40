//! `extant lab`: profiles of FFSB, and experiments from the run to the report.

mod common;

use common::{extant, text};
use extant_testkit::{Scratch, TempImage, e2fsck_fn, skipped, tool};
use serde_json::Value;

fn profile(location: &str) -> String {
    format!(
        "num_threadgroups=2\ntime=1\nseed=1\n\
         [filesystem0]\nlocation={location}\nnum_files=10\nmin_filesize=8k\n[end0]\n\
         [threadgroup0]\nnum_threads=2\nwrite_size=8k\nwrite_blocksize=4k\ncreate_weight=1\n\
         readall_weight=1\nread_blocksize=4k\n[end0]\n"
    )
}

#[test]
fn a_profile_runs_on_a_directory() {
    let scratch = Scratch::new();
    let location = scratch.join("place");
    std::fs::create_dir(&location).unwrap();
    let path = scratch.join("profile");
    std::fs::write(&path, profile(location.to_str().unwrap())).unwrap();
    let path = path.to_str().unwrap();
    let output = extant(["lab", "ffsb", "--json", path]);
    assert!(output.status.success(), "{output:?}");
    assert!(text(&output.stderr).contains("num_threadgroups is 2, but 1 are described"));
    let outcome: Value = serde_json::from_slice(&output.stdout).unwrap();
    let group = &outcome["measured"]["groups"][0];
    let created = group["operations"]["create"]["operations"].as_u64().unwrap();
    let files = std::fs::read_dir(location.join("data")).unwrap().count() as u64;
    assert_eq!(files, 10 + created);
    assert_eq!(group["operations"]["create"]["written_bytes"], created * 8192);

    // It prints the profile first: that of another place makes its files there.
    let output = extant(["lab", "ffsb", path]);
    assert!(output.status.success(), "{output:?}");
    for expected in
        ["fs setup took", "Op Name", "create", "Transactions per Second", "% CPU Utilization"]
    {
        assert!(text(&output.stdout).contains(expected), "{expected} in {output:?}");
    }
    let said = text(&output.stdout);
    let (shown, _) = said.split_once("fs setup took").unwrap();
    let other = scratch.join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(path, shown).unwrap();
    let output = extant(["lab", "ffsb", "--location", other.to_str().unwrap(), path]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert!(std::fs::read_dir(other.join("data")).unwrap().count() >= 10);
}

#[test]
fn profiles_of_published_runs_are_known_by_name() {
    let output = extant(["lab", "ffsb", "--list"]);
    assert!(output.status.success(), "{output:?}");
    for line in text(&output.stdout).lines() {
        let name = line.split(' ').next().unwrap();
        // It is run where it is told to, and that is nowhere.
        let output = extant(["lab", "ffsb", "--location", "/no/such/place", name]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {said}");
        assert!(said.contains("/no/such/place/data"), "{name}: {said}");
    }
    assert_eq!(text(&output.stdout).lines().count(), 6);
}

#[test]
fn a_profile_runs_on_a_volume_in_process() {
    if tool("e2fsck").is_none() {
        return skipped("no e2fsprogs here");
    }
    // More than a fast machine fills in the second that the profile runs.
    let image = TempImage::by_mke2fs(8 << 30, &["-t", "ext4", "-N", "1000000"]).unwrap();
    let scratch = Scratch::new();
    let path = scratch.join("profile");
    std::fs::write(&path, profile("/")).unwrap();
    let image = image.path();
    let output =
        extant(["lab", "ffsb", "--image", image.to_str().unwrap(), path.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    e2fsck_fn(&image).unwrap();
    let listed = extant(["ls", &format!("{}:/data", image.display())]);
    assert!(text(&listed.stdout).lines().count() >= 10, "{listed:?}");
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let scratch = Scratch::new();
    let path = scratch.join("profile");
    std::fs::write(&path, "time=1\nspeed=fast\n").unwrap();
    let refused = |words: &[&str], code: i32, expected: &str| {
        let output = extant(words);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {output:?}");
        assert!(text(&output.stderr).contains(expected), "{words:?}: {output:?}");
    };
    refused(&["lab", "ffsb", path.to_str().unwrap()], 1, "line 2: unknown key speed");
    refused(
        &["lab", "ffsb", "/no/such/profile"],
        1,
        "/no/such/profile: no such file or built-in profile (see --list)",
    );
    refused(&["lab", "run", "frobnicate"], 2, "unknown experiment frobnicate (expected copy-");
    refused(&["lab", "run", "all", "--targets", "ext5"], 2, "unknown target \"ext5\"");
    for factor in ["0", "-1", "1e9", "nan", "inf", "x"] {
        let expected = "expected a positive number up to 1000";
        refused(&["lab", "run", "all", "--sizes", factor], 2, expected);
        refused(&["lab", "run", "all", "--counts", factor], 2, expected);
    }
    refused(&["lab", "run", "all", "--time", "-3"], 2, "expected a positive number up to ");
    refused(&["lab", "run", "all", "--runs", "4294967295"], 2, "is not in 1..=10000");
    let file = path.to_str().unwrap();
    refused(&["lab", "run", "all", "--out", file], 1, "profile: not a directory");
    refused(&["lab", "report", "--out", file], 1, "profile/run.json: Not a directory");
    let other = scratch.join("other.toml");
    std::fs::write(&other, "time = 1\n").unwrap();
    let other = other.to_str().unwrap();
    refused(&["lab", "run", "all", "--experiments", other], 1, "unknown field `time`");
    refused(&["lab", "run", "all", "--device", "/"], 2, "/: not a block device");
    let out = scratch.join("out");
    let not_at_once = |experiment: &str, targets: &str, expected: &str| {
        let words = ["lab", "run", experiment, "--jobs", "2", "--targets", targets, "--out"];
        let words: Vec<&str> = words.into_iter().chain(out.to_str()).collect();
        refused(&words, 2, expected);
        assert!(!out.exists(), "nothing was touched");
    };
    not_at_once(
        "low-memory",
        "engine@nvme,ext4",
        "low-memory on ext4 is measured by this machine's",
    );
    not_at_once(
        "check-time",
        "engine@nvme",
        "check-time: at 0% e2fsck is measured by this machine's",
    );
    refused(&["lab", "run", "all", "--jobs", "0"], 2, "0 is not in 1..=1024");
    refused(&["lab", "report", "--out", "/no/such/dir"], 1, "/no/such/dir/run.json");
    refused(&["lab", "summary", "/no/such/dir"], 1, "/no/such/dir/run.json");
    refused(
        &["lab", "large", "frobnicate"],
        2,
        "unknown experiment frobnicate (expected copy-remove",
    );
    refused(&["lab", "compare", "/", "engine"], 2, "must both be directories, or both targets");
    refused(&["lab", "frobnicate"], 2, "frobnicate");
}

/// A file with one experiment, small enough for a test.
const SMALL: &str = "[[experiment]]\nname = \"small\"\ntitle = \"t\"\ndocument = \"d\"\nruns = 2\n\
     targets = [\"engine\"]\n[experiment.low-memory]\ndirectories = 2\nblock = \"64K\"\n\
     large = { files = 2, size = \"1M\" }\nmany = { files = 20, size = \"4K\" }\n";

fn samples(out: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(out.join("samples.jsonl")).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Values of a metric, in the order of the file.
fn of<'s>(samples: &'s [Value], metric: &str) -> Vec<&'s Value> {
    samples.iter().filter(|sample| sample["metric"] == metric).collect()
}

#[test]
fn a_run_is_kept_reported_and_compared() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let out_name = out.to_str().unwrap();
    let dir = format!("dir:{}", scratch.join("place").display());
    // As a run leaves it that was killed.
    std::fs::create_dir_all(scratch.join("place/extant-lab-scratch/copy")).unwrap();
    let targets = format!("engine,engine:nodelalloc,{dir},engine:frobnicate");
    let run = |runs: &str| {
        extant([
            "lab",
            "run",
            "copy-remove",
            "--out",
            out_name,
            "--sizes",
            "0.0001",
            "--counts",
            "0.0002",
            "--runs",
            runs,
            "--targets",
            &targets,
        ])
    };
    let output = run("2");
    assert!(output.status.success(), "{output:?}");
    let found = samples(&out);
    assert_eq!(of(&found, "cell_seconds").len(), 6, "three targets, twice");
    let order: Vec<_> = of(&found, "cell_seconds").iter().map(|it| it["target"].clone()).collect();
    assert_eq!(order[..3], order[3..], "targets take turns");
    let skipped = of(&found, "skipped");
    assert_eq!(skipped.len(), 1);
    assert!(skipped[0]["why"].as_str().unwrap().contains("option frobnicate"), "{skipped:?}");
    let elapsed = of(&found, "elapsed_seconds");
    assert!(elapsed.iter().all(|it| it["value"].as_f64().unwrap() > 0.0 && it["unit"] == "s"));
    assert!(!out.join("scratch").exists(), "the image is gone");
    assert!(!scratch.join("place/extant-lab-scratch").exists(), "the work directory is gone");

    // A line that is not a sample is named by each command that reads it.
    let (name, good) =
        (out.join("samples.jsonl"), std::fs::read(out.join("samples.jsonl")).unwrap());
    std::fs::write(&name, [&good[..], b"nonsense\n"].concat()).unwrap();
    let expected = format!("samples.jsonl: line {}: expected ident, column 2\n", found.len() + 1);
    for said in [run("2"), extant(["lab", "report", "--out", out_name])] {
        assert_eq!(said.status.code(), Some(1), "{said:?}");
        assert!(text(&said.stderr).ends_with(&expected), "{said:?}");
    }
    std::fs::write(&name, good).unwrap();

    let other = run("3");
    assert!(text(&other.stderr).contains("results of other settings"), "{other:?}");

    let output = extant(["lab", "report", "--out", out_name]);
    assert!(output.status.success(), "{output:?}");
    let page = std::fs::read_to_string(out.join("report.html")).unwrap();
    let places = [
        "<h1>",
        "Verdict",
        "<h4>cp, s</h4>",
        "What the documents found",
        "data:image",
        "<details>",
    ];
    let places = places.map(|wanted| page.find(wanted).unwrap_or_else(|| panic!("{wanted}")));
    assert!(places.is_sorted(), "the verdict is first, tables are last: {places:?}");
    for wanted in ["Could not run", "frobnicate", "Published. Measured on:", "126.70"] {
        assert!(page.contains(wanted), "{wanted}");
    }
    let csv = std::fs::read_to_string(out.join("samples.csv")).unwrap();
    assert_eq!(csv.lines().count(), found.len() + 1);
    let png = std::fs::read(out.join("figures/copy-remove--rm-rm-elapsed--s.png")).unwrap();
    assert!(png.starts_with(b"\x89PNG"));

    let output = extant(["lab", "summary", out_name]);
    assert!(output.status.success(), "{output:?}");
    let page = text(&output.stdout);
    for wanted in
        ["| copy-remove | 0.0001 | 0.0002 | 2 | 4 |", "engine:frobnicate", "was not measured"]
    {
        assert!(page.contains(wanted), "{wanted} in {page}");
    }
    let readme = scratch.join("README.md");
    let output = extant(["lab", "summary", "--out", readme.to_str().unwrap(), out_name]);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::read_to_string(readme).unwrap().contains("(index.html)"));
    let index = std::fs::read_to_string(scratch.join("index.html")).unwrap();
    for wanted in ["<a href=\"out/report.html#copy-remove\">out</a>", "First in 6 measures: "] {
        assert!(index.contains(wanted), "{wanted} in {index}");
    }
    assert_eq!(of(&found, "other_load_percent").len(), 6, "once a cell");

    let words = ["lab", "compare", "--json", "--out", out_name, "engine", "engine:nodelalloc"];
    let output = extant(words);
    assert!(output.status.success(), "{output:?}");
    let compared: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(compared.as_array().unwrap().iter().any(|row| row["phase"] == "rm"), "{compared}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let words = ["lab", "compare", "--out", out_name, "engine", "engine@nvme"];
    let output = extant(words);
    assert!(text(&output.stderr).contains("(virtual clock)"), "two clocks: {output:?}");
    let output = extant(["lab", "compare", out_name, out_name]);
    assert!(text(&output.stdout).contains("+0.00%"), "{output:?}");
}

/// A tree that is made up is the same on every target and every machine.
#[test]
fn a_made_tree_is_copied_where_there_is_no_other() {
    let scratch = Scratch::new();
    let (out, place) = (scratch.join("out"), scratch.join("place"));
    std::fs::create_dir(&place).unwrap();
    let file = scratch.join("own.toml");
    let text = "[[experiment]]\nname = \"made\"\ntitle = \"t\"\ndocument = \"d\"\nruns = 1\ntargets = [\"engine\"]\n\
         [experiment.copy-remove]\nmade = { files = 100, bytes = \"2M\" }\n";
    std::fs::write(&file, text).unwrap();
    let targets = format!("engine,engine@nvme,dir:{}", place.display());
    let words = ["lab", "run", "made", "--targets", &targets, "--experiments"];
    let places = [file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let output = extant(words.into_iter().chain(places));
    assert!(output.status.success(), "{output:?}");
    let found = samples(&out);
    let values = |metric: &str| {
        of(&found, metric).iter().map(|it| it["value"].as_f64().unwrap()).collect::<Vec<_>>()
    };
    let (bytes, files) = (values("io_bytes"), values("files"));
    assert_eq!((bytes.len(), files.len()), (3, 3), "{found:?}");
    assert!(bytes.iter().all(|count| *count == bytes[0]) && (2e6..2.2e6).contains(&bytes[0]));
    assert!(files.iter().all(|count| *count == files[0]) && files[0] > 108.0, "{files:?}");
}

/// On a simulated drive what is measured is what the world's clock says: the same figures in every
/// run of the same seed.
#[test]
fn experiments_on_a_simulated_drive_repeat_to_the_last_digit() {
    if tool("tune2fs").is_none() {
        return skipped("no e2fsprogs here");
    }
    let scratch = Scratch::new();
    let run = |name: &str, experiment: &str, sizes: &str, counts: &str| {
        let out = scratch.join(name);
        let scale = ["--sizes", sizes, "--counts", counts, "--runs", "1"];
        let out_name = out.to_str().unwrap();
        let words = ["lab", "run", experiment, "--out", out_name, "--targets", "engine@hdd7200"];
        let output = extant(words.into_iter().chain(scale));
        assert!(output.status.success(), "{output:?}");
        of_worlds(&out)
    };
    for (experiment, sizes, counts) in [
        ("copy-remove", "0.0005", "0.0005"),
        ("hard-links", "0.000001", "0.0001"),
        ("sequential-write", "0.002", "0.03"),
        ("check-time", "1", "0.0001"),
    ] {
        let first = run(&format!("{experiment}-1"), experiment, sizes, counts);
        assert!(first.len() > 5, "{experiment}: {first:?}");
        assert_eq!(first, run(&format!("{experiment}-2"), experiment, sizes, counts));
        if experiment == "check-time" {
            let of_use = |percent: f64| {
                let mut found = first.iter().filter(|it| {
                    it["phase"] == "extant fsck use"
                        && it["metric"] == "check_seconds"
                        && it["at"] == percent
                });
                found.next().unwrap()["value"].as_f64().unwrap()
            };
            assert!(of_use(0.0) < of_use(40.0) && of_use(40.0) < of_use(98.0), "{first:?}");
        }
    }
    // Figures of a curve are compared place by place.
    let [one, other] = ["check-time-1", "check-time-2"].map(|name| scratch.join(name));
    let output = extant(["lab", "compare", one.to_str().unwrap(), other.to_str().unwrap()]);
    let is_meant = |line: &&str| {
        line.contains("extant fsck use, 40% in use") && line.contains("check_seconds")
    };
    let said = text(&output.stdout);
    assert!(said.lines().find(is_meant).is_some_and(|line| line.contains("+0.00%")), "{said}");
}

#[test]
fn options_that_change_nothing_are_named() {
    let scratch = Scratch::new();
    let remark = |experiment: &str, option: &str| {
        let out = scratch.join(experiment);
        let words = ["lab", "run", experiment, option, "2", "--runs", "1", "--counts", "0.0001"];
        // Nothing is measured of it.
        let last = ["--targets", "engine:frobnicate", "--out", out.to_str().unwrap()];
        let output = extant(words.into_iter().chain(last));
        assert!(output.status.success(), "{output:?}");
        let said = text(&output.stderr);
        assert!(said.contains("no measurements (see the samples in"), "{said}");
        said
    };
    assert!(remark("low-memory", "--time").contains("--time has no effect"));
    assert!(remark("check-time", "--sizes").contains("--sizes has no effect"));
    assert!(remark("copy-remove", "--steps").contains("--steps has no effect"));
    assert!(!remark("hard-links", "--sizes").contains("has no effect"));
}

/// Samples by the clocks of simulated drives.
fn of_worlds(out: &std::path::Path) -> Vec<Value> {
    let mut found = samples(out);
    assert_eq!(of(&found, "skipped"), Vec::<&Value>::new());
    // Samples by this machine's clock.
    let of_the_host = ["cell_seconds", "other_load_percent"];
    found.retain(|it| !of_the_host.iter().any(|metric| it["metric"] == *metric));
    found.retain(|it| !it["phase"].as_str().unwrap().starts_with("e2fsck"));
    found
}

/// Twelve cells on simulated drives; with what else the command line says.
fn on_drives(out: &std::path::Path, more: &[&str]) -> Vec<String> {
    let words = "lab run copy-remove hard-links --sizes 0.0005 --counts 0.0002 --runs 3 --targets engine@hdd7200,engine@nvme --out";
    let words = words.split(' ').chain([out.to_str().unwrap()]).chain(more.iter().copied());
    words.map(str::to_owned).collect()
}

/// Worlds have clocks of their own: other work during a cell changes nothing of what it
/// measures, nor where that stands.
#[test]
fn cells_beside_each_other_measure_what_they_do_alone() {
    let scratch = Scratch::new();
    let (one, several) = (scratch.join("one"), scratch.join("several"));
    assert!(extant(on_drives(&one, &[])).status.success());
    let output = extant(on_drives(&several, &["--jobs", "3"]));
    assert!(output.status.success(), "{output:?}");
    let found = of_worlds(&one);
    assert_eq!(of(&samples(&one), "cell_seconds").len(), 12);
    assert!(of(&found, "elapsed_seconds").len() > 40, "{found:?}");
    assert_eq!(of_worlds(&several), found);
    assert!(of(&samples(&several), "other_load_percent").is_empty(), "others were our own");
    let left: Vec<_> = std::fs::read_dir(&several).unwrap().flatten().collect();
    assert_eq!(left.len(), 2, "samples and what they were made with: {left:?}");
}

/// Cells that are done stay, those that were at work are done again, one by one this time.
#[test]
fn several_cells_end_together_and_the_run_goes_on() {
    let scratch = Scratch::new();
    let (out, whole) = (scratch.join("out"), scratch.join("whole"));
    let mut run = started(&on_drives(&out, &["--jobs", "2"]));
    while !std::fs::metadata(out.join("samples.jsonl")).is_ok_and(|file| file.len() > 0) {
        assert!(run.try_wait().unwrap().is_none(), "it ran without a sample");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let ended = std::process::Command::new("kill").args(["-TERM", &run.id().to_string()]).status();
    assert!(ended.unwrap().success());
    assert_eq!(run.wait().unwrap().code(), Some(130), "interrupted");
    let done = of(&samples(&out), "cell_seconds").len();
    assert!((1..12).contains(&done), "{done}");
    // Files of a killed run are removed, wherever they were.
    std::fs::create_dir(out.join("scratch-7")).unwrap();
    std::fs::write(out.join("scratch-7/image"), "x").unwrap();
    assert!(extant(on_drives(&out, &[])).status.success());
    assert!(!out.join("scratch-7").exists());
    assert!(extant(on_drives(&whole, &["--jobs", "4"])).status.success());
    assert_eq!(of_worlds(&out), of_worlds(&whole));
}

/// Words of a run of two targets that mount, twice each.
fn mounting(out: &std::path::Path) -> Option<Vec<String>> {
    if !extant_testkit::is_root() || tool("mke2fs").is_none() || tool("unshare").is_none() {
        skipped("a loop mount needs root, mke2fs and unshare");
        return None;
    }
    let words = "lab run copy-remove --sizes 0.002 --counts 0.005 --runs 2 --targets ext4,extant";
    let words = words.split(' ').map(str::to_owned);
    Some(words.chain(["--out".to_owned(), out.to_str().unwrap().to_owned()]).collect())
}

fn started(words: &[String]) -> std::process::Child {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_extant"));
    command.args(words).stderr(std::process::Stdio::null()).spawn().unwrap()
}

/// Goes on with a run until it is done; twice the same is done once.
fn goes_on(words: &[String], out: &std::path::Path) {
    let output = extant(words);
    assert!(output.status.success(), "{output:?}");
    let found = samples(out);
    let skips = of(&found, "skipped").into_iter();
    let whole: Vec<&Value> = skips.filter(|sample| sample["phase"] == "cell").collect();
    if !whole.is_empty() {
        return skipped(format!("{whole:?}"));
    }
    assert_eq!(of(&found, "cell_seconds").len(), 4);
    let before = std::fs::read(out.join("samples.jsonl")).unwrap();
    assert!(extant(words).status.success());
    assert_eq!(std::fs::read(out.join("samples.jsonl")).unwrap(), before, "all was done already");
    nothing_is_left(out);
}

/// Cells that are done stay, those that were not are done: after SIGKILL as after anything else,
/// wherever it strikes. Nothing stays mounted.
#[test]
fn a_killed_run_leaves_nothing_and_goes_on() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let Some(words) = mounting(&out) else { return };
    let mut cut_short = 0;
    for patience in [20, 60, 120, 200, 300, 450, 700] {
        let mut child = started(&words);
        std::thread::sleep(std::time::Duration::from_millis(patience));
        child.kill().unwrap();
        cut_short += usize::from(!child.wait().unwrap().success());
        nothing_is_left(&out);
    }
    assert!(cut_short > 0, "a run was killed");
    goes_on(&words, &out);
}

/// A cell that is killed is named, and done again by the next run; the others are done in this one.
#[test]
fn a_killed_cell_is_named_and_done_again() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let Some(words) = mounting(&out) else { return };
    let mut run = started(&words);
    // unshare(1) runs the cell. Between its fork and the child's prctl() the end of unshare would
    // leave the child alive, so the kill waits until the child runs the cell.
    let of_cell = loop {
        let runs_cell = |parent: &u32| {
            children(*parent).any(|child| has_word(child, "cell") && !has_word(child, "unshare"))
        };
        if let Some(unshare) = children(run.id()).find(runs_cell) {
            break unshare;
        }
        assert!(run.try_wait().unwrap().is_none(), "it ran without a cell");
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    let killed = std::process::Command::new("kill").args(["-KILL", &of_cell.to_string()]).status();
    assert!(killed.unwrap().success());
    assert!(run.wait().unwrap().success(), "the others are done");
    nothing_is_left(&out);
    let found = samples(&out);
    let killed = of(&found, "skipped").into_iter().find(|sample| sample["target"] == "ext4");
    let why = killed.expect("it was killed")["why"].as_str().unwrap();
    assert!(why.contains("the cell's process died"), "{why}");
    goes_on(&words, &out);
}

/// Processes that a process started: the fourth field of proc_pid_stat(5) is the parent.
fn children(parent: u32) -> impl Iterator<Item = u32> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(move |pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        behind_name.split_whitespace().nth(1) == Some(parent.to_string().as_str())
    })
}

fn has_word(pid: u32, word: &str) -> bool {
    let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    line.split(|byte| *byte == 0).any(|found| found == word.as_bytes())
}

/// The kernel takes mounts and loop devices away when the last process of a cell has gone; that is
/// waited for.
fn nothing_is_left(out: &std::path::Path) {
    let name = out.to_str().unwrap();
    for _ in 0..500 {
        let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
        let loops = std::fs::read_dir("/sys/block").unwrap().flatten().filter(|entry| {
            let backing = entry.path().join("loop/backing_file");
            std::fs::read_to_string(backing).is_ok_and(|file| file.starts_with(name))
        });
        if !mounts.contains(name) && loops.count() == 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("{name} is still mounted, or a loop device has it");
}

#[test]
fn memory_is_limited_or_the_target_says_why_not() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let file = scratch.join("own.toml");
    std::fs::write(&file, SMALL).unwrap();
    let words = [
        "lab",
        "run",
        "small",
        "--experiments",
        file.to_str().unwrap(),
        "--memory",
        "64M",
        "--out",
        out.to_str().unwrap(),
        "--runs",
        "1",
    ];
    let output = extant(words);
    assert!(output.status.success(), "{output:?}");
    let found = samples(&out);
    match of(&found, "skipped").first() {
        Some(why) => assert!(why["why"].as_str().unwrap().contains("memory cannot be limited")),
        None => {
            assert!(!of(&found, "throughput_bytes_per_second").is_empty());
            // Older kernels do not count it.
            let peaks = of(&found, "memory_peak_bytes");
            let fits = |peak: &&Value| (1e6..70e6).contains(&peak["value"].as_f64().unwrap());
            assert!(peaks.iter().all(fits), "{peaks:?}");
        }
    }
}

#[test]
fn experiments_of_a_file_are_listed_and_their_errors_named() {
    let scratch = Scratch::new();
    let file = scratch.join("own.toml");
    let name = file.to_str().unwrap();
    std::fs::write(&file, SMALL).unwrap();
    let output = extant(["lab", "list", "--experiments", name]);
    let list = text(&output.stdout).to_owned();
    for known in
        ["copy-remove", "low-memory", "hard-links", "sequential-write", "check-time", "small"]
    {
        assert!(list.lines().any(|line| line.split(' ').next() == Some(known)), "{known}: {list}");
    }
    // A full list can be read again.
    let output = extant(["lab", "list", "--toml"]);
    std::fs::write(&file, &output.stdout).unwrap();
    assert!(extant(["lab", "list", "--experiments", name]).status.success());

    std::fs::write(&file, SMALL.replace("runs = 2", "rums = 2")).unwrap();
    let output = extant(["lab", "list", "--experiments", name]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(said.contains("own.toml") && said.contains("unknown field `rums`"), "{said}");
    assert!(said.contains("line 5"), "{said}");
}
