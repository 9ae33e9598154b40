//! The mount next to the kernel's ext4 on a loop mount, to fuse2fs and to a null server: the same
//! programs on each, timed until the mount is gone and the image is on the disk.
//!
//! The null server (`crates/mount/examples/null_server.rs`) uses the same transport without a
//! volume: its time is the cost of FUSE itself and of reads and writes of a flat file.

use std::path::{Path, PathBuf};
use std::process::Command;

use extant_testkit::{Scratch, is_root, tool};

use super::cases::{must, pair};
use super::live::huge_volume;
use super::run::{Side, Step};
use super::{Case, Pair, Setting};
use crate::Failure;

/// Files of the tree, in directories of a hundred.
const FILES: u64 = 20_000;
/// Files that are made, by all jobs together.
const CREATES: u64 = 40_000;
/// Megabytes that are written and read.
const MEGABYTES: u64 = 512;
/// Bytes of the volumes.
const VOLUME: u64 = 4 << 30;

/// The start of each script: $1 the server, $2 the image, $3 the mount point, $4 our binary or that
/// of the null server, $5 and later what the case adds. `again` ends a mount and mounts the same
/// files again. `down` waits until the server has ended: without `exe` only its parent has still to
/// take its status.
macro_rules! script {
    ($text:literal) => {
        concat!(
            "set -eu; who=$1 image=$2 dir=$3 extant=$4
            up() { case $who in
                ours*) \"$extant\" mount -o noatime \"$image\" \"$dir\" ;;
                kernel*) mount -o loop,noatime \"$image\" \"$dir\" ;;
                fuse2fs) fuse2fs -f -o rw,fakeroot \"$image\" \"$dir\" > /dev/null 2>&1 & echo $! > \"$image.pid\"
                    appear ;;
                null) \"$extant\" \"$image\" \"$dir\" noatime > /dev/null 2>&1 & echo $! > \"$image.pid\"
                    appear ;;
            esac; }
            appear() { until mountpoint -q \"$dir\"; do sleep 0.01; done; }
            down() { case $who in
                ours*) \"$extant\" umount \"$dir\" ;;
                kernel*) umount \"$dir\" ;;
                fuse2fs | null)
                    umount \"$dir\"; while [ -e \"/proc/$(cat \"$image.pid\")/exe\" ]; do sleep 0.002; done ;;
            esac; }
            again() { case $who in
                null) touch \"$image.again\"; umount \"$dir\"; appear ;;
                *) down; up ;;
            esac; }
            ",
            $text
        )
    };
}

const FRESH: &str = script!(
    "if mountpoint -q \"$dir\"; then down; fi
    case $who in
        null) ;;
        *-fast) mke2fs -q -F -t ext4 -O fast_commit \"$image\" ;;
        *) mke2fs -q -F -t ext4 \"$image\" ;;
    esac; up"
);
const WITH_TREE: &str = script!("tar -C \"$dir\" -xf \"$5\"; again");
const UNTAR: &str = script!("tar -C \"$dir\" -xf \"$5\"; down");
const FIND: &str = script!("find \"$dir\" -ls");
const RM: &str = script!("rm -rf \"$dir\"/tree; down");
const WITH_DIRS: &str = script!(
    "for job in $(seq \"$6\"); do
        mkdir \"$dir/$job\"; \"$5\" prepare-directory \"$dir/$job\" \"$8\" $((40000 / $7 / $6))
    done"
);
const NAMES: &str = script!(
    "for job in $(seq \"$6\"); do
        \"$5\" directory \"$dir/$job\" \"$8\" $((40000 / $7 / $6)) & jobs=\"${jobs-} $!\"
    done
    for job in $jobs; do wait \"$job\"; done; down"
);
const WRITE: &str = script!(
    "cd \"$dir\"; fio $5 --size=\"$6\" --name=it --filename=it --output-format=json; cd /; down"
);
const FILL: &str = script!(
    "fio --rw=write --bs=1m --size=\"$6\" --name=it --filename=\"$dir/it\" > /dev/null; again"
);
const FILL_COLD: &str = script!(
    "fio --rw=write --bs=1m --size=\"$6\" --name=it --filename=\"$dir/it\" > /dev/null; again
    sync; echo 3 > /proc/sys/vm/drop_caches"
);
const READ: &str =
    script!("cd \"$dir\"; fio $5 --size=\"$6\" --name=it --filename=it --output-format=json");

/// Mounted, until the first call on it has its answer.
const MOUNT: &str = script!(
    "started=$(date +%s%N); up; stat -f \"$dir\" > /dev/null; took=$(($(date +%s%N) - started))
    printf 'elapsed: %d.%09d\\n' $((took / 1000000000)) $((took % 1000000000)); down"
);

/// The work of a program on each mount.
#[derive(Clone, Copy)]
enum Work {
    Untar,
    Find,
    Rm,
    /// A call on names, of `name_calls`, by this number of jobs at once.
    Names(&'static str, &'static str),
    /// fio, with these options, on a new file.
    Write(&'static str),
    /// fio on a file that exists.
    Read(&'static str),
    /// The same with nothing of the file in memory.
    ReadCold(&'static str),
    /// fio, writing to a file that exists.
    Rewrite(&'static str),
}

/// The cases: name, what is done, against whom, and the share of the peer's time that ours may
/// take.
const CASES: [(&str, &str, &str, f64, Work); 35] = [
    ("mount-untar", "a tar unpacked on a mount", "kernel", 2.0, Work::Untar),
    ("mount-untar-fuse2fs", "a tar unpacked on a mount", "fuse2fs", 0.2, Work::Untar),
    ("mount-find", "find -ls on a mount", "kernel", 2.0, Work::Find),
    ("mount-find-fuse2fs", "find -ls on a mount", "fuse2fs", 0.2, Work::Find),
    ("mount-rm", "rm -rf on a mount", "kernel", 2.0, Work::Rm),
    ("mount-rm-fuse2fs", "rm -rf on a mount", "fuse2fs", 0.2, Work::Rm),
    ("mount-creates-1", "files made by 1 job", "kernel", 2.0, Work::Names("create", "1")),
    ("mount-creates-2", "files made by 2 jobs", "kernel", 2.0, Work::Names("create", "2")),
    ("mount-creates-8", "files made by 8 jobs", "kernel", 2.0, Work::Names("create", "8")),
    ("mount-creates-32", "files made by 32 jobs", "kernel", 2.0, Work::Names("create", "32")),
    ("mount-creates-fuse2fs", "files made by 1 job", "fuse2fs", 0.2, Work::Names("create", "1")),
    ("mount-write", "written in 1 MiB pieces", "kernel", 1.25, Work::Write(PIECES_WRITTEN)),
    (
        "mount-write-fuse2fs",
        "written in 1 MiB pieces",
        "fuse2fs",
        0.33,
        Work::Write(PIECES_WRITTEN),
    ),
    (
        "mount-write-4k",
        "written in 4 KiB pieces",
        "kernel",
        1.25,
        Work::Write("--rw=write --bs=4k"),
    ),
    (
        "mount-write-direct",
        "written around the cache, 1 MiB",
        "kernel",
        1.25,
        Work::Write("--rw=write --bs=1m --direct=1"),
    ),
    (
        "mount-randwrite",
        "written at random around the cache, 4 KiB, 16 at once",
        "kernel",
        1.25,
        Work::Write(
            "--rw=randwrite --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --io_size=64m",
        ),
    ),
    ("mount-fsync", "2000 pieces of 4 KiB, each fsynced", "kernel", 1.25, Work::Write(FSYNCED)),
    ("mount-read", "read in 1 MiB pieces", "kernel", 1.25, Work::Read(PIECES_READ)),
    (
        "mount-read-direct",
        "read around the cache, 1 MiB",
        "kernel",
        1.25,
        Work::Read("--rw=read --bs=1m --direct=1"),
    ),
    (
        "mount-randread",
        "read at random around the cache, 4 KiB, 16 at once",
        "kernel",
        1.25,
        Work::Read("--rw=randread --bs=4k --direct=1 --ioengine=libaio --iodepth=16 --io_size=64m"),
    ),
    ("mount-links", "second names made by 1 job", "kernel", 2.86, Work::Names("link", "1")),
    ("mount-rewrite", "rewritten in 1 MiB pieces", "kernel", 1.25, Work::Rewrite(PIECES_WRITTEN)),
    ("mount-read-cold", "read in 1 MiB pieces, cold", "kernel", 1.11, Work::ReadCold(PIECES_READ)),
    ("mount-untar-null", "a tar unpacked on a mount", NULL, 1.25, Work::Untar),
    ("mount-find-null", "find -ls on a mount", NULL, 1.25, Work::Find),
    ("mount-rm-null", "rm -rf on a mount", NULL, 1.25, Work::Rm),
    ("mount-creates-null", "files made by 1 job", NULL, 1.25, Work::Names("create", "1")),
    ("mount-links-null", "second names made by 1 job", NULL, 1.25, Work::Names("link", "1")),
    ("mount-write-null", "written in 1 MiB pieces", NULL, 1.25, Work::Write(PIECES_WRITTEN)),
    ("mount-rewrite-null", "rewritten in 1 MiB pieces", NULL, 1.25, Work::Rewrite(PIECES_WRITTEN)),
    ("mount-fsync-null", "2000 pieces of 4 KiB, each fsynced", NULL, 1.25, Work::Write(FSYNCED)),
    ("mount-read-null", "read in 1 MiB pieces", NULL, 1.25, Work::Read(PIECES_READ)),
    ("mount-read-cold-null", "read in 1 MiB pieces, cold", NULL, 1.25, Work::ReadCold(PIECES_READ)),
    (
        "mount-read-direct-null",
        "read around the cache, 1 MiB",
        NULL,
        1.25,
        Work::Read("--rw=read --bs=1m --direct=1"),
    ),
    (
        "mount-write-direct-null",
        "written around the cache, 1 MiB",
        NULL,
        1.25,
        Work::Write("--rw=write --bs=1m --direct=1"),
    ),
];

/// The name of the null server as a peer.
const NULL: &str = "null";
/// Options of fio.
const PIECES_WRITTEN: &str = "--rw=write --bs=1m";
const PIECES_READ: &str = "--rw=read --bs=1m";
const FSYNCED: &str = "--rw=write --bs=4k --fsync=1 --io_size=8000k";

/// Cases of fsync with fast commits: name, what is done, and the two sides, where `-fast` is on a
/// volume with the feature.
const FAST_COMMITS: [(&str, &str, &str, &str); 3] = [
    ("mount-fsync-fast", "the same with fast commits", "ours-fast", "kernel-fast"),
    ("mount-fsync-gain", "ours with fast commits", "ours-fast", "ours"),
    ("mount-fsync-gain-kernel", "the kernel with fast commits", "kernel-fast", "kernel"),
];

/// The cases, in the order of docs/src/performance/results.md.
pub(super) fn all() -> Vec<Case> {
    let worked = CASES.iter().map(|(name, what, peer, bar, _)| Case {
        name,
        what,
        peer,
        bar: Some(*bar),
        prepare: Box::new(|setting| prepare(setting, name)),
    });
    let mounted = Case {
        name: "mount-ready-16t",
        what: "a volume of 16 TiB mounted (bar: 0.1 s)",
        peer: "kernel",
        bar: None,
        prepare: Box::new(prepare_huge),
    };
    let fast = FAST_COMMITS.iter().map(|(name, what, first, second)| Case {
        name,
        what,
        peer: second,
        bar: None,
        prepare: Box::new(|setting| prepare_fast(setting, first, second)),
    });
    worked.chain(fast).chain([mounted]).collect()
}

fn prepare_fast(setting: &Setting, first: &str, second: &str) -> Result<Pair, Failure> {
    let work = Work::Write(FSYNCED);
    let (extra, input) = extra(setting, work)?;
    let points = Mounts(vec![Scratch::new(), Scratch::new()]);
    let side_of = |who, at: usize| {
        let point = points.0[at].path();
        side(setting, (who, &setting.extant), point, work, &extra)
    };
    let mut pair = pair(side_of(first, 0), Some(side_of(second, 1)), input);
    pair._held.push(Box::new(points));
    Ok(pair)
}

fn prepare_huge(setting: &Setting) -> Result<Pair, Failure> {
    let (host, image) = huge_volume(setting, "host-mounted.xfs")?;
    let points = Mounts(vec![Scratch::new(), Scratch::new()]);
    let side = |who: &str, point: &Path| {
        let args = [Path::new(who), &image, point, &setting.extant];
        Side { is_reported: true, ..Side::of(MOUNT, &args, None) }
    };
    let (ours, theirs) = (side("ours", points.0[0].path()), side("kernel", points.0[1].path()));
    let mut pair = pair(ours, Some(theirs), format!("{} GiB", (16 << 10) / setting.shrink));
    // The mounts go before what they lie on.
    pair._held.push(Box::new((points, host)));
    Ok(pair)
}

/// Mount points and the files that serve them, removed when dropped.
struct Mounts(Vec<Scratch>);

impl Drop for Mounts {
    fn drop(&mut self) {
        for point in &self.0 {
            // Gone already where the case ends without its mount.
            let _ = Command::new("umount").arg("-q").arg(point.path()).status();
        }
    }
}

fn prepare(setting: &Setting, name: &str) -> Result<Pair, Failure> {
    if !is_root() {
        return Err("mounts are made as root".into());
    }
    let (.., peer, _, work) = CASES.iter().find(|case| case.0 == name).ok_or("no such case")?;
    for program in ["mke2fs", "fio", "fuse2fs", "mountpoint"] {
        tool(program).ok_or_else(|| format!("{program} is not installed"))?;
    }
    let (extra, input) = extra(setting, *work)?;
    let points = Mounts(vec![Scratch::new(), Scratch::new()]);
    let null_server = match *peer {
        NULL => Some(setting.example("extant-mount", "null_server")?),
        _ => None,
    };
    let their_binary = null_server.as_ref().unwrap_or(&setting.extant);
    let points_of = |who: usize| points.0[who].path();
    let ours = side(setting, ("ours", &setting.extant), points_of(0), *work, &extra);
    let theirs = side(setting, (peer, their_binary), points_of(1), *work, &extra);
    let mut pair = pair(ours, Some(theirs), input);
    pair._held.push(Box::new(points));
    Ok(pair)
}

/// Arguments of the scripts besides the mount, and the text of the table.
fn extra(setting: &Setting, work: Work) -> Result<(Vec<PathBuf>, String), Failure> {
    Ok(match work {
        Work::Untar | Work::Find | Work::Rm => {
            let files = FILES / setting.shrink;
            (vec![tree_tar(setting, files)?], format!("{files} files of 0 to 8 KiB"))
        }
        Work::Names(call, jobs) => {
            let driver = setting.name_calls()?;
            let shrink = setting.shrink.to_string();
            let count = CREATES / setting.shrink;
            (vec![driver, jobs.into(), shrink.into(), call.into()], format!("{count} files"))
        }
        Work::Write(options)
        | Work::Read(options)
        | Work::ReadCold(options)
        | Work::Rewrite(options) => {
            let megabytes = MEGABYTES / setting.shrink;
            let size = format!("{megabytes}m");
            (vec![options.into(), size.into()], format!("a file of {megabytes} MiB"))
        }
    })
}

/// A tar of small files, made once.
fn tree_tar(setting: &Setting, files: u64) -> Result<PathBuf, Failure> {
    let tar = setting.dir.join("mounted-tree.tar");
    if tar.exists() {
        return Ok(tar);
    }
    let make = "set -eu; mkdir -p \"$1/tree\"; cd \"$1/tree\"; head -c 8192 /dev/urandom > ../piece
        for n in $(seq 0 $(($2 - 1))); do
            dir=d$((n / 100)); [ -d $dir ] || mkdir $dir; head -c $((n * 7919 % 8192)) ../piece > $dir/f$n
        done
        cd .. && tar cf mounted-tree.tar tree && rm -rf tree piece";
    let mut command = Command::new("bash");
    must(command.args(["-c", make, "tree"]).arg(&setting.dir).arg(files.to_string()))?;
    Ok(tar)
}

fn side(
    setting: &Setting,
    (who, binary): (&str, &Path),
    point: &Path,
    work: Work,
    extra: &[PathBuf],
) -> Side {
    let image = setting.dir.join(format!("mounted-{who}.img"));
    let mut args = vec![PathBuf::from(who), image.clone(), point.to_owned(), binary.to_owned()];
    args.extend_from_slice(extra);
    let step = |script| Step { script, args: args.clone() };
    let (more, timed) = match work {
        Work::Untar => (None, UNTAR),
        Work::Find => (Some(WITH_TREE), FIND),
        Work::Rm => (Some(WITH_TREE), RM),
        Work::Names(..) => (Some(WITH_DIRS), NAMES),
        Work::Write(_) => (None, WRITE),
        Work::Read(_) => (Some(FILL), READ),
        Work::ReadCold(_) => (Some(FILL_COLD), READ),
        Work::Rewrite(_) => (Some(FILL), WRITE),
    };
    Side {
        before: [Some(FRESH), more].into_iter().flatten().map(step).collect(),
        output: Some(image),
        sparse: Some(VOLUME),
        steps: vec![step(timed)],
        sync: true,
        is_reported: false,
    }
}
