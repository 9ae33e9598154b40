//! Changes by `extant debugfs` next to those by e2fsprogs' debugfs, judged by e2fsck, debugfs and
//! dumpe2fs.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use extant_testkit::{
    LoopMount, Scratch, TempImage, Tool, debugfs, e2fsck_fn, is_root, left_dirty, skip, tool,
};

const EXTANT: &str = env!("CARGO_BIN_EXE_extant");

/// Both programs on copies of one volume.
struct Both {
    scratch: Scratch,
    theirs: Tool,
    ours_image: PathBuf,
    theirs_image: PathBuf,
}

impl Both {
    /// A volume with a few files, made by mke2fs.
    fn new(options: &[&str]) -> Result<Self, String> {
        let theirs = tool("debugfs").ok_or("debugfs is not installed")?;
        let scratch = Scratch::new();
        let tree = scratch.join("tree");
        fs::create_dir_all(tree.join("usr/bin")).unwrap();
        fs::create_dir_all(tree.join("full")).unwrap();
        fs::write(tree.join("usr/bin/envd"), vec![7; 30_000]).unwrap();
        fs::write(tree.join("hello"), "hello\n").unwrap();
        fs::hard_link(tree.join("hello"), tree.join("hard")).unwrap();
        for index in 0..40 {
            fs::write(tree.join(format!("full/file{index}")), [index; 3000]).unwrap();
        }
        let mut source = vec![0; 90_000];
        source[..5000].fill(1);
        source[60_000..70_000].fill(2);
        fs::write(scratch.join("source"), &source).unwrap();
        let mode = fs::Permissions::from_mode(0o640);
        fs::set_permissions(scratch.join("source"), mode).unwrap();
        let words: Vec<&str> = [&["-d", tree.to_str().unwrap()], options].concat();
        let image = TempImage::by_mke2fs(40 << 20, &words)?;
        let [ours_image, theirs_image] = ["ours.img", "theirs.img"].map(|it| scratch.join(it));
        for copy in [&ours_image, &theirs_image] {
            fs::copy(image.path(), copy).unwrap();
        }
        symlink(EXTANT, scratch.join("debugfs")).unwrap();
        Ok(Self { scratch, theirs, ours_image, theirs_image })
    }

    fn script(&self, lines: &str) -> PathBuf {
        let source = self.scratch.join("source");
        let script = self.scratch.join("script");
        fs::write(&script, lines.replace("SOURCE", source.to_str().unwrap())).unwrap();
        script
    }

    /// Runs a script by both; ours must do all of it.
    fn run(&self, lines: &str) {
        let script = self.script(lines);
        let words = ["-w", "-f", script.to_str().unwrap()];
        let mut command = self.theirs.command();
        let command = command.args(words).arg(&self.theirs_image).env("TZ", "UTC");
        command.output().unwrap();
        let done = self.ours(&words);
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(0), "{said}");
    }

    fn ours(&self, words: &[&str]) -> Output {
        let mut command = Command::new(self.scratch.join("debugfs"));
        command.args(words).arg(&self.ours_image).stdin(Stdio::null()).output().unwrap()
    }

    fn shown(&self, image: &Path, request: &str) -> Vec<String> {
        let mut command = self.theirs.command();
        let command = command.args(["-R", request]).arg(image).env("TZ", "UTC");
        let output = command.env("DEBUGFS_PAGER", "cat").output().unwrap();
        String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect()
    }

    /// A request of theirs shows the same of both volumes, but for lines that begin so.
    fn same(&self, request: &str, but: &[&str]) {
        let lines = |image: &Path| {
            let mut lines = self.shown(image, request);
            lines.retain(|line| !but.iter().any(|it| line.trim_start().starts_with(it)));
            lines
        };
        let (ours, theirs) = (lines(&self.ours_image), lines(&self.theirs_image));
        assert!(!theirs.is_empty(), "{request}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{request}");
        }
        assert_eq!(ours.len(), theirs.len(), "{request}");
    }

    fn checked(&self) {
        for image in [&self.theirs_image, &self.ours_image] {
            e2fsck_fn(image).unwrap();
        }
    }
}

macro_rules! both {
    ($options:expr) => {
        match Both::new($options) {
            Ok(both) => both,
            Err(why) => skip!("{why}"),
        }
    };
}

/// Feature sets; of journals and without one.
const FEATURE_SETS: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "4096", "-O", "^has_journal"],
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3", "-I", "128"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit", "-b", "1024"],
];

/// Lines of `stat` in which a change by the engine differs from one by debugfs: the number that
/// tells a reused inode, and where blocks lie.
const OWN: &[&str] = &["Generation", "Inode checksum", "(", "TOTAL", "File ACL", "Inode: "];

#[test]
fn files_are_made_and_removed_as_by_debugfs() {
    for options in FEATURE_SETS {
        let both = both!(options);
        both.run(
            "set_current_time 1600000000\n\
             write SOURCE new\n\
             write SOURCE /usr/bin/other\n\
             write SOURCE usr/third\n\
             mkdir made\n\
             mkdir /usr/made\n\
             symlink short target\n\
             symlink /usr/long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n\
             mknod pipe p\n\
             mknod tty c 4 5\n\
             mknod disk b 8 300\n\
             ln hello again\n\
             sif again links_count 3\n\
             rm /usr/bin/other\n\
             mkdir gone\n\
             rmdir gone\n\
             unlink hard\n\
             sif hello links_count 2\n\
             cd usr/bin\n\
             rm envd\n\
             write SOURCE envd\n\
             sif envd mode 0100755\n\
             sif envd uid 0\n\
             sif envd gid 100000\n",
        );
        both.checked();
        let but = [OWN, &["ctime"]].concat();
        for file in
            ["new", "usr/third", "made", "usr/made", "short", "usr/long", "pipe", "tty", "disk"]
        {
            both.same(&format!("stat {file}"), OWN);
        }
        for file in ["hello", "again", "usr/bin/envd"] {
            both.same(&format!("stat {file}"), &but);
        }
        for file in ["new", "usr/bin/envd", "full/file7"] {
            both.same(&format!("cat {file}"), &[]);
        }
        let names = |image: &Path, dir: &str| {
            let mut names: Vec<_> = both
                .shown(image, &format!("ls -p {dir}"))
                .iter()
                .map(|line| line.splitn(3, '/').nth(2).unwrap_or_default().to_owned())
                .collect();
            names.sort();
            names
        };
        for dir in ["/", "/usr", "/usr/bin"] {
            let (ours, theirs) = (names(&both.ours_image, dir), names(&both.theirs_image, dir));
            assert_eq!(ours, theirs, "{options:?}: {dir}");
        }
    }
}

#[test]
fn fields_are_set_as_by_debugfs() {
    for options in FEATURE_SETS {
        let both = both!(options);
        both.run(
            "set_current_time 1600000000\n\
             sif hello mode 0100600\n\
             sif hello uid 70000\n\
             sif hello gid_lo 12\n\
             sif hello mtime 20200101120000\n\
             sif hello atime @1000000000\n\
             sif hello ctime 20300101\n\
             sif hello crtime 2020010112\n\
             sif hello generation 0x99\n\
             sif hello version 7\n\
             sif hello projid 5\n\
             sif hello flags 0x80080\n\
             sif <12> mtime 1500000000\n\
             ssv mkfs_time 20200101\n\
             ssv lastcheck 1500000001\n\
             ssv mtime 20210203040506\n\
             ssv wtime 1500000003\n\
             ssv mnt_count 7\n\
             ssv max_mnt_count 9\n\
             ssv checkinterval 86400\n\
             ssv flags 1\n\
             ssv volume_name label\n\
             ssv last_mounted /mnt/here\n\
             ssv hash_seed 01234567-89ab-cdef-0123-456789abcdef\n\
             ssv def_hash_version tea\n\
             ssv raid_stripe_width 16\n\
             ssv error_count 0\n",
        );
        let but = ["Inode checksum", "Checksum", "[Checksum", "Lifetime writes", "Journal"];
        both.same("stat hello", &but);
        both.same("stat <12>", &but);
        both.same("stats", &but);
    }
}

/// Bits, records and blocks, sound or not.
#[test]
fn structures_are_set_as_by_debugfs() {
    for options in FEATURE_SETS {
        let both = both!(options);
        let is_bigalloc = options.contains(&"bigalloc");
        // Theirs counts each block of a cluster.
        let blocks = if is_bigalloc { "" } else { "setb 8000 5\nfreeb 8001 2\nsetb 8002\n" };
        both.run(&format!(
            "set_current_time 1600000000\n{blocks}\
             seti <1500> 3\n\
             freei <1501>\n\
             copy_inode hello <1500>\n\
             kill_file full/file3\n\
             unlink full/file3\n\
             clri full/file4\n\
             set_bg 0 used_dirs_count 9\n\
             set_bg 0 free_inodes_count 99\n\
             dirty\n",
        ));
        let but = ["Inode checksum", "Checksum", "[Checksum", "Lifetime writes", "Journal"];
        for request in ["stat <1500>", "stat <1501>", "testi <1500>", "testi <1501>", "stats"] {
            both.same(request, &but);
        }
        for request in ["testb 7990 30", "ls -p full", "stat full/file4", "lsdel"] {
            both.same(request, &but);
        }
        both.run(
            "set_current_time 1600000001\ndirty -clean\nzap_block -o 100 -l 50 -p 0x5a 8003\n",
        );
        both.same("bd 8003", &[]);
        both.same("stats -h", &but);
    }
}

/// Lines as they are found in scripts.
#[test]
fn lines_of_known_scripts_do_what_they_did() {
    let both = both!(&["-t", "ext4"]);
    // A guest agent is swapped (E2B).
    both.run(
        "rm /usr/bin/envd\nwrite SOURCE /usr/bin/envd\nsif /usr/bin/envd mode 0100777\n\
         sif /usr/bin/envd uid 0\nsif /usr/bin/envd gid 0\n",
    );
    both.checked();
    both.same("cat /usr/bin/envd", &[]);
    // Labels of SELinux (Bottlerocket).
    let mut labels = String::new();
    for index in 0..40 {
        let label = "system_u:object_r:os_t:s0";
        labels += &format!("ea_set /full/file{index} security.selinux {label}\\000\n");
    }
    labels += "ea_set / security.selinux system_u:object_r:root_t:s0\n";
    labels += "ea_set \"/usr/bin\" user.comment \"two words\"\nea_set hello user.a b\n";
    labels += "ea_set hello user.a other\nea_set hello user.b c\nea_rm hello user.b\n";
    both.run(&labels);
    both.checked();
    for file in ["/full/file0", "/full/file39", "/", "/usr/bin", "hello"] {
        both.same(&format!("ea_list {file}"), &[]);
    }
    // Times that are the same in every build (Yocto, genimage).
    both.run(
        "set_current_time 1577836800\nset_super_value mkfs_time 1577836800\n\
         set_super_value lastcheck 1577836800\nset_super_value mtime 0\n\
         set_super_value wtime 1577836800\n\
         set_super_value hash_seed deadbeef-dead-beef-dead-beefdeadbeef\n",
    );
    let but = ["Checksum", "Lifetime writes", "Journal"];
    both.same("show_super_stats -h", &but);
    // From standard input, as `printf ... | debugfs -w image`.
    let mut command = Command::new(both.scratch.join("debugfs"));
    let command = command.args(["-w", "-f", "-"]).arg(&both.ours_image).stdin(Stdio::piped());
    let mut running = command.stdout(Stdio::null()).spawn().unwrap();
    let lines = "mkdir /etc\nmkdir /etc/conf.d\nquit\n";
    std::io::Write::write_all(&mut running.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    assert!(running.wait().unwrap().success());
    e2fsck_fn(&both.ours_image).unwrap();
    assert!(debugfs(&both.ours_image, "stat /etc/conf.d").unwrap().contains("directory"));
}

#[test]
fn what_cannot_be_done_is_told_and_changes_nothing() {
    let both = both!(&["-t", "ext4"]);
    let before = fs::read(&both.ours_image).unwrap();
    for (request, said) in [
        ("rm nosuch", "rm: File not found by ext2_lookup while trying to resolve filename\n"),
        ("rm usr", "rm: file is a directory\n"),
        ("rmdir usr", "rmdir: directory not empty\n"),
        ("rmdir hello", "rmdir: file is not a directory\n"),
        ("mkdir usr", "mkdir: Ext2 directory already exists \n"),
        ("symlink hello x", "symlink: Ext2 file already exists \n"),
        ("write nosuch x", "write: No such file or directory while opening \"nosuch\" to copy\n"),
        ("write /etc/passwd hello", "write: Ext2 file already exists \n"),
        ("unlink nosuch", "unlink_file_by_name: File not found by ext2_lookup \n"),
        ("sif hello nosuch 1", "sif: invalid field specifier: nosuch\n"),
        ("sif hello mode x", "Couldn't parse 'x' for field mode.\n"),
        ("sif hello mode 70000", "Value '70000' exceeds field mode maximum 65535.\n"),
        ("ssv nosuch 1", "ssv: invalid field specifier: nosuch\n"),
        ("ssv inodes_count x", "Couldn't parse 'x' for field inodes_count.\n"),
        (
            "ea_rm hello user.x",
            "ea_rm: Extended attribute key not found while removing extended attribute user.x\n",
        ),
        ("mknod x q", "mknod: Usage: mknod <name> [p| [c|b] <major> <minor>]\n"),
        ("expand_dir full", "expand_dir: not supported by extant\n"),
        ("features nosuch", "features: Unknown feature: nosuch\n\n"),
        ("punch hello x", "punch: Bad logical block - x\n"),
        ("punch hello 5 3", " from 5 to 3\n\n"),
        ("punch nosuch 0", "nosuch: File not found by ext2_lookup \n"),
        ("fallocate hello", "fallocate: Usage: fallocate <file> start_blk [end_blk]\n"),
    ] {
        for (words, said) in [(&["-w"][..], said), (&[], "Filesystem opened read/only\n")] {
            let words = [words, &["-R", request]].concat();
            let done = both.ours(&words);
            let found = String::from_utf8_lossy(&done.stderr).into_owned();
            assert_eq!(done.status.code(), Some(1), "{words:?}: {found}");
            let is_refused_before = words.len() == 2 && !found.ends_with(said);
            assert!(found.ends_with(said) || is_refused_before, "{words:?}: {found}");
            assert!(!words.contains(&"-w") || found.ends_with(said), "{words:?}: {found}");
        }
    }
    e2fsck_fn(&both.ours_image).unwrap();
    // Nothing but the log and the superblock's times may differ.
    let listed = |image: &Path| both.shown(image, "ls -l /");
    let now = listed(&both.ours_image);
    fs::write(&both.ours_image, before).unwrap();
    assert_eq!(now, listed(&both.ours_image));
}

#[test]
fn ranges_are_punched_and_allocated_as_by_debugfs() {
    for options in FEATURE_SETS {
        let both = both!(options);
        let has_extents = options.contains(&"ext4");
        let mut script = "punch usr/bin/envd 3 5\npunch usr/bin/envd 20\n".to_owned();
        if has_extents {
            script += "fallocate usr/bin/envd 0 10\n\
                       fallocate full/file3 90 120\ntruncate full/file3 100\n";
        }
        // Theirs leaves blocks of the cluster that e2fsck finds after the end.
        if has_extents && !options.contains(&"bigalloc") {
            script += "fallocate hello 0 7\n";
        }
        script += "punch full/file5 0\n";
        both.run(&script);
        both.checked();
        let but = [OWN, &["ctime", "mtime"]].concat();
        for file in ["usr/bin/envd", "hello", "full/file3", "full/file5"] {
            both.same(&format!("stat {file}"), &but);
        }
        both.same("cat usr/bin/envd", &[]);
    }
}

#[test]
fn features_are_set_as_by_debugfs() {
    let both = both!(&["-t", "ext4"]);
    both.run("features stable_inodes ^ext_attr\nfeatures sparse_super2 ^sparse_super2\n");
    both.checked();
    both.same("features", &[]);
    let words = ["-w", "-R", "features nosuch verity"];
    let done = both.ours(&words);
    let mut command = both.theirs.command();
    let theirs = command.args(words).arg(&both.theirs_image).output().unwrap();
    assert_eq!((done.status.code(), &done.stdout), (Some(1), &theirs.stdout));
    both.same("features", &[]);
}

/// A log is replayed before the first change; with an undo file all of it can be taken back.
#[test]
fn a_log_is_replayed_first_and_an_undo_file_puts_all_back() {
    if !is_root() {
        skip!("a loop mount needs root");
    }
    let image = match TempImage::by_mke2fs(32 << 20, &["-t", "ext4"]) {
        Ok(image) => image,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    let dirty = left_dirty(&image.path(), "", |root| {
        fs::create_dir(root.join("kept")).unwrap();
        fs::write(root.join("kept/file"), "in the log\n").unwrap();
        fs::File::open(root.join("kept/file")).unwrap().sync_all().unwrap();
    });
    let dirty = match dirty {
        Ok(dirty) => dirty,
        Err(why) => skip!("{why}"),
    };
    let copy = scratch.join("dirty.img");
    fs::copy(dirty.path(), &copy).unwrap();
    let before = fs::read(&copy).unwrap();
    let undo = scratch.join("undo");
    let run = |words: &[&str]| {
        let done = Command::new(EXTANT).arg("debugfs").args(words).arg(&copy).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    run(&["-w", "-z", undo.to_str().unwrap(), "-R", "sif kept/file mode 0100600"]);
    e2fsck_fn(&copy).unwrap();
    assert_eq!(debugfs(&copy, "cat kept/file").unwrap(), "in the log\n");
    assert!(debugfs(&copy, "stat kept/file").unwrap().contains("Mode:  0600"));
    {
        let mount = LoopMount::new(&copy, "ro").unwrap();
        assert_eq!(fs::read_to_string(mount.path().join("kept/file")).unwrap(), "in the log\n");
    }
    let undone = Command::new(EXTANT).arg("undo").args([&undo, &copy]).output().unwrap();
    assert!(undone.status.success(), "{}", String::from_utf8_lossy(&undone.stderr));
    assert!(fs::read(&copy).unwrap() == before, "the undo file puts every byte back");
}
