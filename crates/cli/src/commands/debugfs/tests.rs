//! Power cuts in every request that changes a volume with a journal.

use std::ffi::OsStr;
use std::fmt::Write;
use std::ops::ControlFlow;
use std::sync::Arc;

use extant::debug::{DebugChoice, DebugVolume, DirWalk};
use extant::rooms::device::{Device, MemoryDevice};
use extant::rooms::ondisk::GroupNo;
use extant::rooms::ondisk::bitmap::BitmapKind;
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::runtime::env::Env;
use extant::rooms::storage::Opened;
use extant::{Formatter, Volume, VolumeOptions};
use extant_sim::{Recorder, Survivors, Sweep};

use super::image::{NotOpened, OpenImage, OpenRequest};
use super::shell::Shell;
use crate::session::Session;

/// Runs requests on a device.
fn run(device: Arc<dyn Device>, lines: &[&str]) {
    let mut session = Session::new("debugfs", true);
    let mut shell = Shell::new(&mut session);
    let request = OpenRequest { is_writable: true, ..OpenRequest::default() };
    let opened = OpenImage::open_on(Opened::real(device), OsStr::new("image"), &request);
    let mut image = match opened {
        Ok((image, _)) => image,
        Err(NotOpened::Trying(why) | NotOpened::Line(why)) => panic!("{why}"),
    };
    image.set_now(Some(1_600_000_000)).unwrap();
    shell.image = Some(image);
    for line in lines {
        assert!(shell.run_line(line.as_bytes(), false).is_ok(), "{line}");
        assert_eq!(shell.failures, 0, "{line}");
    }
    assert!(shell.image.take().unwrap().close().is_ok(), "{lines:?}");
}

/// The contents of a volume after the mount that follows a power cut.
fn state(device: Arc<dyn Device>) -> String {
    let opened = Volume::open(device.clone(), &Env::threads(), &VolumeOptions::default());
    opened.unwrap().close().unwrap();
    let (mut volume, _) = DebugVolume::open(device, &DebugChoice::default()).unwrap();
    let mut records = Vec::new();
    volume
        .walk_inodes(&mut |record| {
            records.push(record);
            ControlFlow::Continue(())
        })
        .unwrap();
    let mut lines = format!("{:?}\n", volume.raw().s_volume_name);
    for record in records {
        if !volume.is_inode_used(record.number).unwrap() {
            continue;
        }
        writeln!(lines, "{} {:?}", record.number, record.bytes).unwrap();
        // The log has other contents after each mount.
        if record.file_type() == Some(FileType::Regular) && record.number.0 > 10 {
            writeln!(lines, "{:?}", volume.contents(&record)).unwrap();
        }
        if record.is_dir() {
            let walked = volume.walk_dir(&record, DirWalk::default(), &mut |item| {
                writeln!(lines, "  {} {:?}", item.inode, item.name).unwrap();
                ControlFlow::Continue(())
            });
            writeln!(lines, "{walked:?}").unwrap();
        }
        writeln!(lines, "{:?}", volume.xattrs(&record)).unwrap();
    }
    for group in (0..volume.geometry().groups_count).map(GroupNo) {
        for kind in [BitmapKind::Block, BitmapKind::Inode] {
            let bits = volume.bitmap(kind, group).unwrap();
            writeln!(lines, "{group} {bits:?}").unwrap();
        }
        writeln!(lines, "{:?}", volume.editor().desc(group)).unwrap();
    }
    lines
}

/// The requests, each on a volume of its own; `SOURCE` is a file of the host.
const REQUESTS: &[&str] = &[
    "mkdir new",
    "write SOURCE dir/new",
    "symlink new target",
    "mknod new c 4 5",
    "rm big",
    "rmdir empty",
    "unlink big",
    "kill_file big",
    "undel <17>",
    "undel <17>\nexpand_dir dir",
    "set_inode_field big mode 0100600",
    "sif big bmap[3] 15000",
    "sif big checksum 5",
    "set_super_value volume_name other",
    "set_block_group 0 used_dirs_count 9",
    "setb 15000 40",
    "freeb 9000 40",
    "seti <100> 3",
    "freei big",
    "clri big",
    "copy_inode big dir/file",
    "ea_set big user.name value",
    "ea_rm dir user.held",
    "punch big 2 5",
    "fallocate big 0 60",
    "expand_dir dir",
    "bmap -a big 900",
    "bmap big 3 15000",
    "zap_block -f big -p 9 3",
];

#[test]
fn a_power_cut_leaves_all_of_a_request_or_nothing() {
    let source = std::env::current_exe().unwrap().with_extension("source-of-power-cuts");
    std::fs::write(&source, vec![7; 30_000]).unwrap();
    let sound = Arc::new(MemoryDevice::new(16 << 20));
    Formatter::new().format(&*sound).unwrap();
    let with_source = |line: &str| line.replace("SOURCE", source.to_str().unwrap());
    let lines = "mkdir dir\nmkdir empty\nwrite SOURCE big\nwrite SOURCE dir/file\n\
                 write SOURCE gone\nea_set dir user.held value\nsif gone links_count 0\n\
                 kill_file gone\nunlink gone";
    let lines = with_source(lines);
    run(sound.clone(), &lines.lines().collect::<Vec<_>>());
    let mut wrong = Vec::new();
    let mut seen = [0, 0];
    for request in REQUESTS {
        // Of two requests the first one is not cut.
        let lines = with_source(request);
        let lines: Vec<_> = lines.lines().collect();
        let (last, first) = lines.split_last().unwrap();
        let base = Arc::new(sound.fork());
        run(base.clone(), first);
        let recorder = Arc::new(Recorder::new(base.clone()));
        run(recorder.clone(), &[last]);
        let before = state(Arc::new(base.fork()));
        let after = state(Arc::new(recorder.image(recorder.events().len(), Survivors::All)));
        assert!(before != after, "{request} changes something");
        // A superblock of which one sector was written fails its checksum.
        for cut in recorder.cuts(Sweep { torn: 0, ..Sweep::seeded(7) }) {
            let name = cut.to_string();
            let found = state(Arc::new(cut.image));
            match (found == before, found == after) {
                (true, _) => seen[0] += 1,
                (_, true) => seen[1] += 1,
                _ => {
                    let old = before.lines().zip(after.lines()).zip(found.lines());
                    let part = old.clone().find(|((old, new), it)| it != old && it != new);
                    let shown = format!("{part:?}");
                    let shown: String = shown.chars().take(1500).collect();
                    wrong.push(format!("{request}, {name}: {shown}"));
                }
            }
        }
    }
    std::fs::remove_file(&source).unwrap();
    assert!(wrong.is_empty(), "{}: {}", wrong.len(), wrong.join("\n"));
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
}
