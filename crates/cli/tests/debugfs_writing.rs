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
        ("expand_dir hello", "ext2fs_expand_dir: Ext2 inode is not a directory \n"),
        ("undel hello", "hello: Inode is not marked as deleted\n"),
        ("mi hello x", "mi: Usage: mi <file>\n"),
        ("smmp seq 1", "smmp: no MMP block allocated\n\n"),
        ("bmap -a hello 0 5", "Can't set and allocate a block\n"),
        ("bmap hello 0 x", "bmap: Bad physical block - x\n"),
        ("sif hello bmap[x] 4", "sif: invalid field specifier: bmap[x]\n"),
        ("sif hello bmap[3] x", "Couldn't parse 'x' for field bmap.\n"),
        ("sif hello checksum_lo 0x10000", "exceeds field checksum maximum 65535.\n"),
        ("ln hello usr/bin/envd", "make_link: Ext2 inode is not a directory \n"),
        ("journal_open", "journal_open: not supported by extant\n"),
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
    assert!(fs::read(&both.ours_image).unwrap() == before, "not a byte is written");
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

/// Both programs with answers on standard input; ours must do what it is asked.
fn typed(both: &Both, request: &str, answers: &str) {
    let mut shown = Vec::new();
    let ours = both.scratch.join("debugfs");
    let mut commands =
        [(Command::new(ours), &both.ours_image), (both.theirs.command(), &both.theirs_image)];
    for (command, image) in &mut commands {
        let command = command.args(["-w", "-R", request]).arg(&**image);
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut running = command.spawn().unwrap();
        let mut input = running.stdin.take().unwrap();
        std::io::Write::write_all(&mut input, answers.as_bytes()).unwrap();
        drop(input);
        let done = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let said: Vec<_> = said.lines().skip(1).map(str::to_owned).collect();
        shown.push((String::from_utf8_lossy(&done.stdout).into_owned(), said));
    }
    assert_eq!(shown[0], shown[1], "{request}");
}

/// `modify_inode` asks for each field as debugfs does, and takes what it takes.
#[test]
fn fields_are_asked_for_as_by_debugfs() {
    for options in FEATURE_SETS {
        let both = both!(options);
        both.run(
            "set_current_time 1600000000\nsif hello size 4000000000\nsif hello dtime 0xf0000000\n",
        );
        typed(&both, "mi hello", "0100600\n70000\n\n0x20\n");
        typed(
            &both,
            "modify_inode hello",
            " 0100640\n12x\n-1\n+7 \n99999999999\n1\n2\n0\n3\n\n\n\n0x77\n",
        );
        typed(&both, "mi /usr", "");
        typed(&both, "mi nosuch", "5\n");
        both.same("stat hello", &["Inode checksum"]);
    }
    // The lines after a request are its answers there too.
    let both = both!(&["-t", "ext4"]);
    let mut command = Command::new(both.scratch.join("debugfs"));
    let command = command.args(["-w", "-f", "-"]).arg(&both.ours_image).stdin(Stdio::piped());
    let mut running = command.stdout(Stdio::null()).spawn().unwrap();
    let lines = format!("mi hello\n0100604\n{}sif hello uid 7\n", "\n".repeat(30));
    std::io::Write::write_all(&mut running.stdin.take().unwrap(), lines.as_bytes()).unwrap();
    assert!(running.wait().unwrap().success());
    let shown = debugfs(&both.ours_image, "stat hello").unwrap();
    assert!(shown.contains("Mode:  0604") && shown.contains("User:     7"), "{shown}");
}

/// Blocks that are given to files and taken from them, one by one.
#[test]
fn maps_are_changed_as_by_debugfs() {
    for options in FEATURE_SETS {
        let both = both!(options);
        let (scale, is_bigalloc) = (4, options.contains(&"bigalloc"));
        both.run("expand_dir full\nexpand /usr\nexpand_dir /usr\n");
        both.checked();
        for request in ["stat full", "stat /usr"] {
            both.same(request, OWN);
        }
        for request in ["bmap -a hello 0", "bmap -a usr/bin/envd 2", "bmap usr/bin/envd 1000"] {
            let ours = both.ours(&["-w", "-R", request]);
            let mut theirs = both.theirs.command();
            let theirs = theirs.args(["-w", "-R", request]).arg(&both.theirs_image);
            assert_eq!(ours.stdout, theirs.output().unwrap().stdout, "{options:?}: {request}");
        }
        let mut script = String::from("bmap -a hello 1\nsif hello size 8192\n");
        // Theirs finds the clusters of a file otherwise.
        if !is_bigalloc {
            script += &format!("bmap -a usr/bin/envd {}\nbmap -a usr/bin/envd 400\n", 15 * scale);
            script += "bmap -a usr/bin/envd 100000\n";
        }
        both.run(&script);
        let but = [OWN, &["ctime", "mtime"]].concat();
        both.same("stat usr/bin/envd", &but);
        both.run(
            "bmap usr/bin/envd 3 5000\nbmap usr/bin/envd 4 0\nsif usr/bin/envd bmap[2] 5001\n\
             sif usr/bin/envd bmap[20] 5002\nbmap usr/bin/envd 5 9999999\n",
        );
        both.same("stat usr/bin/envd", &but);
        for block in [2, 3, 4, 5, 20] {
            both.same(&format!("bmap usr/bin/envd {block}"), &[]);
        }
    }
}

#[test]
fn deleted_files_come_back_as_by_debugfs() {
    for options in [&["-t", "ext2", "-b", "1024"][..], &["-t", "ext2", "-b", "4096", "-I", "128"]] {
        let both = both!(options);
        let envd = both.shown(&both.theirs_image, "stat usr/bin/envd");
        let number = envd[0].split_whitespace().nth(1).unwrap().to_owned();
        let file = both.shown(&both.theirs_image, "stat full/file8");
        let other = file[0].split_whitespace().nth(1).unwrap().to_owned();
        for request in ["kill_file usr/bin/envd", "kill_file full/file8"] {
            let script =
                format!("{request}\nsif <{number}> links_count 0\nsif <{other}> links_count 0\n");
            both.run(&script);
        }
        both.run(&format!(
            "unlink usr/bin/envd\nunlink full/file8\nundel <{number}> full/back\n\
             undelete <{other}> full\nunlink full/<{other}>\nln <{other}> full/file8\n"
        ));
        both.checked();
        for request in ["stat full/back", "cat full/back", "stat full/file8", "stats -h"] {
            both.same(request, &["ctime", "Lifetime", "Checksum", "Last write time"]);
        }
    }
}

#[test]
fn checksums_of_inodes_are_set_as_by_debugfs() {
    let both = both!(&["-t", "ext4"]);
    both.run("sif hello generation 0\nsif hello checksum 5\n");
    let shown = |image: &Path| {
        let mut command = both.theirs.command();
        let output = command.args(["-n", "-R", "stat hello"]).arg(image).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().find(|line| line.contains("checksum")).map(str::to_owned)
    };
    for script in ["sif hello checksum_hi 7\n", "sif hello checksum_lo 9\n"] {
        both.run(script);
        assert_eq!(shown(&both.ours_image), shown(&both.theirs_image), "{script}");
    }
    assert_eq!(shown(&both.ours_image).unwrap().trim(), "Inode checksum: 0x00070009");
    let done = both.ours(&["-w", "-R", "sif hello checksum calc"]);
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let right = shown(&both.ours_image).unwrap();
    assert_eq!(said.trim().replace("Checksum set to", "Inode checksum:"), right.trim());
    e2fsck_fn(&both.ours_image).unwrap();
}

#[test]
fn the_block_of_multiple_mount_protection_is_set_as_by_debugfs() {
    let both = both!(&["-t", "ext4", "-O", "mmp", "-E", "mmp_update_interval=1"]);
    both.run("smmp nodename elsewhere\n");
    let but = ["time", "device_name", "checksum", "check_interval"];
    both.same("dump_mmp", &but);
    let shown = |request: &str| both.shown(&both.ours_image, request).join("\n");
    for (request, line) in [
        ("smmp check_interval 9", "check_interval: 9"),
        ("set_mmp_value bdevname loop7", "device_name: loop7"),
        ("smmp time 7", "time: 7 -- "),
    ] {
        both.ours(&["-w", "-R", request]);
        assert!(shown("dump_mmp").contains(line), "{}", shown("dump_mmp"));
    }
    both.ours(&["-w", "-R", "smmp clear"]);
    assert!(shown("dump_mmp").contains("sequence: ff4d4d50"), "{}", shown("dump_mmp"));
    let words = ["-R", "smmp -l"];
    let mut theirs = both.theirs.command();
    assert_eq!(both.ours(&words).stdout, theirs.args(words).output().unwrap().stdout);
    both.ours(&["-w", "-R", "smmp seq 5"]);
    let refused = both.ours(&["-w", "-R", "smmp seq 6"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("MMP: device currently active"));
}

/// Blocks past the end are told one by one; those before it are marked.
#[test]
fn bits_past_the_end_are_refused_as_by_debugfs() {
    let both = both!(&["-t", "ext2", "-b", "4096"]);
    for request in ["setb 10238 4", "freeb 10239 3", "setb 20000", "freeb 20000 2", "testb 10239 3"]
    {
        let ours = both.ours(&["-w", "-R", request]);
        let mut command = both.theirs.command();
        let theirs = command.args(["-w", "-R", request]).arg(&both.theirs_image).output().unwrap();
        let said = |output: &Output, image: &Path| {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let text = text.replace(image.to_str().unwrap(), "IMAGE");
            text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let (found, expected) = (said(&ours, &both.ours_image), said(&theirs, &both.theirs_image));
        assert_eq!(found, expected, "{request}");
        assert_eq!(ours.status.code(), Some(1), "{request}");
    }
    both.same("testb 10230 10", &[]);
}

#[test]
fn fields_of_groups_are_set_as_by_debugfs() {
    // Theirs leaves the checksums of descriptors, and opens no volume where they are wrong.
    for (options, size) in [
        (&["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"][..], 64),
        (&["-t", "ext3", "-b", "1024"], 32),
    ] {
        let both = both!(options);
        let said = |request: &str| {
            let ours = both.ours(&["-w", "-R", request]);
            let mut command = both.theirs.command();
            let command = command.args(["-w", "-R", request]).arg(&both.theirs_image);
            let theirs = command.output().unwrap();
            let [found, expected] = [ours, theirs].map(|output| {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let said = said.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
                (String::from_utf8_lossy(&output.stdout).into_owned(), said)
            });
            assert_eq!(found, expected, "{options:?}: {request}");
        };
        said("set_bg -l");
        for field in ["exclude_bitmap", "block_bitmap_csum", "inode_bitmap_csum", "itable_unused"] {
            for half in ["", "_lo", "_hi"] {
                for value in ["0x12", "0x12345", "0x123456789", "x"] {
                    said(&format!("set_bg 1 {field}{half} {value}"));
                }
            }
        }
        for request in ["flags 7", "flags_lo 7", "checksum 0x12345", "free_blocks_count_hi 3"] {
            said(&format!("set_bg 2 {request}"));
        }
        said("set_bg 1 checksum 0x1234");
        let [ours, theirs] = [&both.ours_image, &both.theirs_image]
            .map(|it| fs::read(it).unwrap()[2048 + size..2048 + 3 * size].to_vec());
        assert_eq!(ours, theirs, "{options:?}");
    }
}

/// Numbers that a seed gives.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        // Fewer than 2^32.
        all[self.below(all.len() as u64) as usize]
    }

    /// A path: of a file or directory that may be there or not.
    fn path(&mut self) -> String {
        let dir = self.one_of(&["", "", "usr/", "d0/", "d1/", "full/", "/usr/bin/"]);
        let name = self.one_of(&["f0", "f1", "f2", "f3", "d0", "d1", "file7", "envd", "hello"]);
        format!("{dir}{name}")
    }

    /// A request that keeps the volume sound.
    fn request(&mut self, has_extents: bool, has_inline: bool) -> String {
        let (path, number) = (self.path(), self.below(40));
        // Theirs puts long targets into the inode too.
        let step = if has_inline { 1 } else { 3 };
        match self.below(14) {
            0 | 1 => format!("mkdir {path}"),
            2..=4 => format!("write SOURCE {path}"),
            5 => format!("symlink {path} {}", "x".repeat(1 + step * number as usize)),
            // Theirs makes a second entry of a name that is there.
            6 => {
                let kind = self.one_of(&["p", "c 4 5", "b 8 300", "q"]);
                format!("mknod node{} {kind}", self.0 >> 40)
            }
            7 => format!("rm {path}"),
            8 => format!("rmdir {path}"),
            9 => format!("sif {path} uid {}", number * 3000),
            10 => format!("sif {path} mtime @{}", number * 100_000_000),
            11 => format!("ssv volume_name label{number}"),
            12 => format!("punch full/file{number} {} {}", self.below(3), self.below(5)),
            _ if has_extents => {
                format!("fallocate full/file{number} {}  {}", self.below(9), number)
            }
            // Of a directory with inline data it is refused.
            _ if has_inline => "expand_dir full".to_owned(),
            _ => format!("expand_dir {}", self.one_of(&["full", "usr", "d0", "hello", "f1"])),
        }
    }
}

/// Volumes on which random scripts run: without a journal in use, as theirs writes past it.
const RANDOM_SETS: &[&[&str]] = &[
    &["-t", "ext2", "-b", "1024"],
    &["-t", "ext3"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-O", "inline_data", "-I", "256"],
    &["-t", "ext4", "-O", "^metadata_csum,uninit_bg,^64bit", "-b", "1024"],
    &["-t", "ext4", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext4", "-O", "meta_bg,^resize_inode,quota,ea_inode,orphan_file", "-b", "2048"],
    &["-t", "ext3", "-I", "128", "-g", "1024", "-b", "1024"],
];

/// Seeded scripts do the same by both programs: what they print, and what is there afterwards.
/// Their errors are compared one by one elsewhere: theirs has more lines for some.
/// `EXTANT_SEED` is the first seed, and `EXTANT_SET` runs one of the volumes.
#[test]
fn random_scripts_do_what_they_do_by_debugfs() {
    let number = |name: &str| std::env::var(name).ok().map(|it| it.parse::<u64>().expect(name));
    let count = if std::env::var_os("EXTANT_SLOW").is_some() { 40 } else { 2 };
    let first = number("EXTANT_SEED").unwrap_or(0);
    for (set, options) in RANDOM_SETS.iter().enumerate() {
        if number("EXTANT_SET").is_some_and(|only| only != set as u64) {
            continue;
        }
        for seed in first..first + count {
            let both = both!(options);
            let what = format!("{options:?}, seed {seed}");
            let mut chance = Chance(1000 * set as u64 + seed);
            // Unwritten blocks at the end of a file and inline data differ on purpose.
            let has_extents = *options == ["-t", "ext4", "-b", "4096"];
            let has_inline = options.contains(&"inline_data");
            // A file in many pieces has blocks of its map, too.
            let is_scattered = has_inline || options.contains(&"^metadata_csum,uninit_bg,^64bit");
            let counts: &[&str] = if is_scattered { &["Links"] } else { &[] };
            if has_inline {
                // Theirs cuts a file whose end is a hole.
                fs::write(both.scratch.join("source"), vec![5; 40_000]).unwrap();
            }
            let mut script = "set_current_time 1600000000\n".to_owned();
            for _ in 0..60 {
                script += &(chance.request(has_extents, has_inline) + "\n");
            }
            let path = both.script(&script);
            let words = ["-w", "-f", path.to_str().unwrap()];
            let ours = both.ours(&words);
            let mut command = both.theirs.command();
            let command = command.args(words).arg(&both.theirs_image).env("TZ", "UTC");
            let theirs = command.output().unwrap();
            let said = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).into_owned();
                let lines = text.lines().filter(|line| {
                    !line.starts_with("Allocated inode") && !line.starts_with("debugfs 1.47")
                });
                lines.map(str::to_owned).collect::<Vec<_>>()
            };
            let (found, expected) = (said(&ours.stdout), said(&theirs.stdout));
            let mut pairs = found.iter().zip(&expected).enumerate();
            let other = pairs.find(|(_, (found, expected))| found != expected);
            let same = other.is_none() && found.len() == expected.len();
            assert!(same, "{what}: {other:?}, {} and {}: {script}", found.len(), expected.len());
            let found = [&both.ours_image, &both.theirs_image].map(|it| e2fsck_fn(it).err());
            // Theirs leaves the inode of a long symlink whose name is taken.
            let is_sound = found[0].is_none() || found[1].is_some();
            assert!(is_sound, "{what}: {found:?}: {script}");
            for dir in ["", "usr/", "d0/", "d1/", "full/", "/usr/bin/"] {
                for name in ["f0", "f1", "f2", "f3", "d0", "d1", "file7", "envd", "hello"] {
                    let shown = |image: &Path| {
                        let mut lines = both.shown(image, &format!("stat {dir}{name}"));
                        let but = [OWN, &["ctime", "mtime", "atime", "crtime"], counts].concat();
                        let kind = lines.first().and_then(|line| {
                            let (_, kind) = line.split_once("Type: ")?;
                            Some(kind.split_once("Flags")?.0.to_owned())
                        });
                        lines.retain(|it| !but.iter().any(|but| it.trim_start().starts_with(but)));
                        if kind.as_ref().is_some_and(|kind| kind.starts_with("regular")) {
                            lines.extend(both.shown(image, &format!("cat {dir}{name}")));
                        }
                        lines.extend(kind);
                        lines
                    };
                    let (found, expected) = (shown(&both.ours_image), shown(&both.theirs_image));
                    assert_eq!(found, expected, "{what}: {dir}{name}: {script}");
                }
            }
        }
    }
}
