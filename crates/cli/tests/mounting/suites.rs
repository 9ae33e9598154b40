//! Suites by others on a mount, in short runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use extant_testkit::{Scratch, e2fsck_fn, skip};

use super::program::program;
use super::{Mount, can_mount, image};

/// Runs it in the mount with a limit in seconds; what it said, and whether it was content.
fn run(mount: &Mount, limit: &str, program: &PathBuf, args: &[&str]) -> (bool, String) {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", limit]).arg(program).args(args).current_dir(mount.path());
    let output = command.stdin(Stdio::null()).output().expect("timeout runs");
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// Everything that the kernel's ext4 passes. Its own configuration does not parse on Linux.
#[test]
fn pjdfstest_passes() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(pjdfstest) = program("pjdfstest") else {
        skip!("no pjdfstest here (cargo xtask test installs it, with libacl1-dev)");
    };
    let scratch = Scratch::new();
    // Ordinary users must reach the tests' directory.
    fs::set_permissions(&*scratch, fs::Permissions::from_mode(0o755)).expect("chmod");
    let config = scratch.join("config.toml");
    let text = "[features]
posix_fallocate = {}
rename_ctime = {}
utimensat = {}
utime_now = {}
nfsv4_acls = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [[\"nobody\",\"nogroup\"],[\"daemon\",\"daemon\"]]
";
    fs::write(&config, text).expect("write");
    let image = image(&scratch, &["-t", "ext4"], "256M");
    let mount = Mount::new(&scratch, &image, &[]);
    let dir = mount.path().join("dir");
    fs::create_dir(&dir).expect("mkdir");
    let config = config.to_str().expect("a plain path");
    let dir = dir.to_str().expect("a plain path");
    let (is_content, said) = run(&mount, "120", &pjdfstest, &["-c", config, "-p", dir]);
    let failed: Vec<&str> = said.lines().filter(|line| line.contains("FAILED")).collect();
    assert!(is_content && failed.is_empty(), "{}\n{said}", failed.join("\n"));
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// For fsx: no mappings.
const UNMAPPED: &str = "[weights]
mapread = 0
mapwrite = 0
invalidate = 0
";

/// Random reads, writes and truncations of one file, with and without mappings.
#[test]
fn fsx_finds_no_difference() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(fsx) = program("fsx") else { skip!("no fsx here (cargo xtask test installs it)") };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "64M");
    let mount = Mount::new(&scratch, &image, &[]);
    let unmapped = scratch.join("unmapped.toml");
    fs::write(&unmapped, UNMAPPED).expect("write");
    let unmapped = ["-f", unmapped.to_str().expect("a plain path")];
    for seed in 1..=8 {
        let how: &[&str] = if seed % 2 == 0 { &unmapped } else { &[] };
        let seed = seed.to_string();
        let args = [how, &["-N", "2000", "-S", &seed, "file"]].concat();
        let (is_content, said) = run(&mount, "60", &fsx, &args);
        assert!(is_content, "seed {seed} {how:?}: {said}");
    }
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

#[test]
fn fio_reads_what_it_wrote() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(fio) = program("fio") else { skip!("no fio here") };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "256M");
    let mount = Mount::new(&scratch, &image, &[]);
    let common = ["--size=24m", "--verify=crc32c", "--verify_fatal=1", "--do_verify=1"];
    let jobs: [&[&str]; 4] = [
        &["--name=buffered", "--rw=randwrite", "--bsrange=1k-64k", "--ioengine=psync"],
        &[
            "--name=direct",
            "--rw=randwrite",
            "--bs=4k",
            "--direct=1",
            "--ioengine=libaio",
            "--iodepth=16",
        ],
        &["--name=mapped", "--rw=randwrite", "--bs=4k", "--ioengine=mmap"],
        &["--name=many", "--rw=write", "--bs=256k", "--numjobs=4", "--ioengine=psync", "--fsync=8"],
    ];
    for job in jobs {
        let (is_content, said) = run(&mount, "60", &fio, &[&common, job].concat());
        assert!(is_content, "{job:?}: {said}");
    }
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// stress-ng checks what it does where it can (`--verify`).
#[test]
fn stress_ng_finds_nothing_wrong() {
    if let Err(why) = can_mount() {
        skip!("{why}");
    }
    let Some(stress) = program("stress-ng") else { skip!("no stress-ng here") };
    let scratch = Scratch::new();
    let image = image(&scratch, &["-t", "ext4"], "256M");
    let mount = Mount::new(&scratch, &image, &[]);
    for stressor in STRESSORS {
        let option = format!("--{stressor}");
        let args = ["--temp-path", ".", "--verify", "--timeout", "1", "--quiet"];
        // Its output must not fill the volume.
        let args = [&args[..], &["--hdd-bytes", "16m", &option, "2"]].concat();
        let (is_content, said) = run(&mount, "60", &stress, &args);
        assert!(is_content, "{stressor}: {said}");
    }
    mount.unmount();
    e2fsck_fn(&image).expect("healthy");
}

/// Its stressors of files and directories that end when they should.
const STRESSORS: [&str; 14] = [
    "access",
    "chattr",
    "chmod",
    "copy-file",
    "dentry",
    "dir",
    "fallocate",
    "filename",
    "flock",
    "hdd",
    "rename",
    "symlink",
    "utime",
    "xattr",
];
