//! `extant lab`: profiles of FFSB on a directory and on a volume in process.

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

    let output = extant(["lab", "ffsb", path]);
    assert!(output.status.success(), "{output:?}");
    for expected in
        ["fs setup took", "Op Name", "create", "Transactions per Second", "% CPU Utilization"]
    {
        assert!(text(&output.stdout).contains(expected), "{expected} in {output:?}");
    }
}

#[test]
fn a_profile_runs_on_a_volume_in_process() {
    if tool("e2fsck").is_none() {
        return skipped("no e2fsprogs here");
    }
    let image = TempImage::by_mke2fs(512 << 20, &["-t", "ext4"]).unwrap();
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
    refused(&["lab", "ffsb", path.to_str().unwrap()], 1, "line 2: there is no key speed here");
    refused(&["lab", "ffsb", "/no/such/profile"], 1, "/no/such/profile");
    refused(&["lab", "run", "low-memory"], 1, "lab run is not built yet");
    refused(&["lab", "frobnicate"], 2, "lab has no subcommand frobnicate");
}
