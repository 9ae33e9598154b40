//! Commands on device URLs: what our binary writes through layers, qemu-img and e2fsck judge
//! without them.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::extant;
use extant_testkit::{Scratch, Tool, e2fsck_fn, skip, tool};

const TEXT: &[u8] = b"kept in secret\n";

/// Runs a command that must succeed; `@` in its words is the image.
fn done(words: &str, image: &str) -> String {
    let output = run(words, image);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(words: &str, image: &str) -> Output {
    extant(words.split(' ').map(|word| word.replace('@', image)))
}

/// Runs a command that must fail, and gives what it said.
fn refused(words: &str, image: &str) -> String {
    let output = run(words, image);
    assert!(!output.status.success(), "{words}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Makes a file system and changes it by all that writes.
fn use_it(image: &str, source: &Path) {
    let source = source.display();
    done("mkfs -q -t ext4 @", image);
    done("mkdir @:/dir", image);
    done(&format!("cp {source} @:/dir/file"), image);
    assert_eq!(done("ls @:/dir", image), "file\n");
    assert_eq!(done("cat @:/dir/file", image).as_bytes(), TEXT);
    done("tune -L layered @", image);
    done("fsck -fn @", image);
    done("fsck -fy @", image);
    assert!(done("info -h @", image).contains("layered"));
}

fn source(scratch: &Scratch) -> PathBuf {
    let tree = scratch.join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), TEXT).unwrap();
    tree
}

struct Luks {
    scratch: Scratch,
    qemu: Tool,
    key: PathBuf,
    image: PathBuf,
}

impl Luks {
    fn new(options: &str) -> Result<Self, &'static str> {
        let Some(qemu) = tool("qemu-img") else { return Err("qemu-img is missing") };
        let scratch = Scratch::new();
        let (key, image) = (scratch.join("key"), scratch.join("image"));
        fs::write(&key, "a passphrase").unwrap();
        let luks = Self { scratch, qemu, key, image };
        let options = format!("key-secret=s,iter-time=10{options}");
        let image = luks.image.to_str().unwrap();
        let secret = luks.secret();
        let words =
            ["create", "-q", "-f", "luks", "--object", &secret, "-o", &options, image, "32M"];
        // It measures how fast the machine is, and gives up where that comes to nothing.
        luks.qemu.text_despite("accurate CPU usage", &words).unwrap();
        Ok(luks)
    }

    fn secret(&self) -> String {
        format!("secret,id=s,file={}", self.key.display())
    }

    fn url(&self) -> String {
        format!("crypt:{}?key-file={}", self.image.display(), self.key.display())
    }

    /// The volume without its layers, as qemu-img reads it.
    fn deciphered(&self) -> PathBuf {
        let out = self.scratch.join("deciphered");
        let from = format!("driver=luks,key-secret=s,file.filename={}", self.image.display());
        let words = ["convert", "--object", &self.secret(), "--image-opts", "-O", "raw", &from];
        let words: Vec<&str> = words.into_iter().chain([out.to_str().unwrap()]).collect();
        self.qemu.text(words).unwrap();
        out
    }
}

#[test]
fn a_luks_container_is_used_like_any_image() {
    for options in ["", ",cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256"] {
        let luks = match Luks::new(options) {
            Ok(luks) => luks,
            Err(why) => skip!("{why}"),
        };
        let tree = source(&luks.scratch);
        use_it(&luks.url(), &tree.join("file"));
        e2fsck_fn(&luks.deciphered()).unwrap();
        assert!(!fs::read(&luks.image).unwrap().windows(TEXT.len()).any(|run| run == TEXT));

        let size = fs::metadata(&luks.image).unwrap().len();
        done(&format!("build -q -o @ --size 16M {}", tree.display()), &luks.url());
        assert_eq!(done("cat @:/file", &luks.url()).as_bytes(), TEXT);
        e2fsck_fn(&luks.deciphered()).unwrap();
        assert_eq!(fs::metadata(&luks.image).unwrap().len(), size, "it keeps its size");
    }
}

/// A pipe is read once, as what a user types should be.
#[test]
fn a_key_is_asked_for_once() {
    let luks = match Luks::new("") {
        Ok(luks) => luks,
        Err(why) => skip!("{why}"),
    };
    let tree = source(&luks.scratch).display().to_string();
    let url = format!("crypt:{}?key-fd=0", luks.image.display());
    let given = |words: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_extant"));
        command.args(words.split(' ').map(|word| word.replace('@', &url)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(&fs::read(&luks.key).unwrap()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for words in ["mkfs -q @", "mkfs -q -F -d # @", "build -q -o @ --size 16M #"] {
        let (code, said) = given(&words.replace('#', &tree));
        assert_eq!(code, Some(0), "{words}: {said}");
        e2fsck_fn(&luks.deciphered()).unwrap();
    }
    assert_eq!(done("cat @:/file", &luks.url()).as_bytes(), TEXT);
    for words in ["mkfs -q @", "mkfs -q -d # @"] {
        let (code, said) = given(&words.replace('#', &tree));
        assert_eq!(code, Some(1), "{words}");
        assert!(said.contains("an ext4 file system"), "{said}");
    }
    assert_eq!(done("cat @:/file", &luks.url()).as_bytes(), TEXT, "nothing was overwritten");
}

#[test]
fn a_wrong_key_or_none_is_told() {
    let luks = match Luks::new("") {
        Ok(luks) => luks,
        Err(why) => skip!("{why}"),
    };
    let (image, other) = (luks.image.display().to_string(), luks.scratch.join("other"));
    fs::write(&other, "another passphrase").unwrap();
    let url = format!("crypt:{image}?key-file={}", other.display());
    let told = format!("{image}: no key slot opens with this key");
    for words in ["ls @:/", "fsck -n @", "mkfs -q @", "mkdir @:/dir"] {
        assert!(refused(words, &url).contains(&told), "{words}");
    }
    let told = refused("ls @:/", &format!("crypt:{image}?key-file=no-such-file"));
    assert!(told.contains("key: no-such-file: No such file"), "{told}");
}

#[test]
fn joined_files_hold_one_volume() {
    let scratch = Scratch::new();
    let (one, two) = (scratch.join("one"), scratch.join("two"));
    for path in [&one, &two] {
        fs::write(path, vec![0xee; 16 << 20]).unwrap();
    }
    let (a, b) = (one.display(), two.display());
    let url = format!("linear:{a}?offset=1M&size=9M,{b}?size=12M");
    let tree = source(&scratch);
    use_it(&url, &tree.join("file"));
    let whole = scratch.join("whole");
    let (first, second) = (fs::read(&one).unwrap(), fs::read(&two).unwrap());
    let joined = [&first[1 << 20..10 << 20], &second[..12 << 20]].concat();
    fs::write(&whole, joined).unwrap();
    e2fsck_fn(&whole).unwrap();
    assert!(first[..1 << 20].iter().chain(&second[12 << 20..]).all(|byte| *byte == 0xee));

    let options = extant::rooms::device::FileDeviceOptions::new().write(true);
    let held = options.open(&two).unwrap();
    let told = refused("mkfs -q -F @", &url);
    assert!(told.contains(&format!("{b}: in use")), "{told}");
    drop(held);
}

#[test]
fn plain_dm_crypt_on_joined_files_takes_a_raw_key() {
    let scratch = Scratch::new();
    let (one, two, key) = (scratch.join("one"), scratch.join("two"), scratch.join("key"));
    fs::write(&key, [0x42; 32]).unwrap();
    for path in [&one, &two] {
        fs::File::create(path).unwrap().set_len(12 << 20).unwrap();
    }
    let tree = source(&scratch);
    let url = format!(
        "crypt:linear:{},{}?cipher=aes-cbc-essiv:sha256&key-file={}",
        one.display(),
        two.display(),
        key.display()
    );
    use_it(&url, &tree.join("file"));
    let small = url.replace("key-file", "key-size=512&key-file");
    assert!(refused("ls @:/", &small).contains("key of 32 bytes, 64 needed"));
}

#[test]
fn a_mount_shows_what_is_deciphered() {
    let luks = match Luks::new("") {
        Ok(luks) => luks,
        Err(why) => skip!("{why}"),
    };
    if fs::File::open("/dev/fuse").is_err() {
        skip!("no /dev/fuse");
    }
    done("mkfs -q @", &luks.url());
    let point = luks.scratch.join("mount point");
    fs::create_dir(&point).unwrap();
    let mounted = extant(["mount".to_owned(), luks.url(), point.display().to_string()]);
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
    let written = fs::write(point.join("file"), TEXT);
    let unmounted = extant(["umount".to_owned(), point.display().to_string()]);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
    written.unwrap();
    assert_eq!(done("cat @:/file", &luks.url()).as_bytes(), TEXT);
    e2fsck_fn(&luks.deciphered()).unwrap();
    // The server in the background gets the key from elsewhere too.
    let mounted_by = |mounted: (bool, String)| {
        assert!(mounted.0, "{}", mounted.1);
        let read = fs::read(point.join("file"));
        let unmounted = extant(["umount".to_owned(), point.display().to_string()]);
        assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
        assert_eq!(read.unwrap(), TEXT);
    };
    let image = luks.image.display();
    for number in [0, 3] {
        let url = format!("crypt:{image}?key-fd={number}");
        let script = format!("exec \"$@\" {number}<\"$KEY\"");
        let words = [env!("CARGO_BIN_EXE_extant"), "mount", &url, point.to_str().unwrap()];
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).args(words).env("KEY", &luks.key);
        let output = command.output().unwrap();
        mounted_by((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let url = format!("crypt:{image}");
    if let Some(mounted) = typed(&["mount", &url, point.to_str().unwrap()], "a passphrase") {
        mounted_by(mounted);
    }
}

/// Runs a command at a terminal of its own and types a line when it asks for one; whether that went
/// well, and what the terminal showed.
fn typed(words: &[&str], line: &str) -> Option<(bool, String)> {
    tool("script")?;
    let program = [env!("CARGO_BIN_EXE_extant")];
    let quoted: Vec<String> = program.iter().chain(words).map(|word| format!("'{word}'")).collect();
    let mut command = Command::new("script");
    command.args(["-qec", &quoted.join(" "), "/dev/null"]).env("SHELL", "/bin/sh");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut shown = Vec::new();
    let mut byte = [0];
    while output.read(&mut byte).unwrap() > 0 {
        shown.push(byte[0]);
        if shown.ends_with(b"Passphrase for ") {
            input.write_all(format!("{line}\n").as_bytes()).unwrap();
        }
    }
    let status = child.wait().unwrap();
    Some((status.success(), String::from_utf8_lossy(&shown).into_owned()))
}

#[test]
fn a_passphrase_is_typed_and_not_shown() {
    let luks = match Luks::new("") {
        Ok(luks) => luks,
        Err(why) => skip!("{why}"),
    };
    done("mkfs -q @", &luks.url());
    done("mkdir @:/typed", &luks.url());
    let image = format!("crypt:{}:/", luks.image.display());
    let Some((is_done, shown)) = typed(&["ls", &image], "a passphrase") else {
        skip!("script is missing")
    };
    assert!(is_done && shown.contains("typed"), "{shown}");
    assert!(!shown.contains("a passphrase"), "{shown}");
    let (is_done, shown) = typed(&["ls", &image], "another").unwrap();
    assert!(!is_done && shown.contains("no key slot opens with this key"), "{shown}");
}

/// Data of a drive are written to its image when the command has ended.
#[test]
fn a_simulated_drive_that_cannot_keep_what_it_holds_fails() {
    let scratch = Scratch::new();
    let path = scratch.join("disk.img");
    fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
    let image = format!("model:nvme:{}", path.display());
    // Writes after some MiB of a file fail; without the signal of that they are errors.
    let script = "trap '' 25; ulimit -f 8192; exec \"$@\"";
    let words = [env!("CARGO_BIN_EXE_extant"), "mkfs", "-q", "-b", "1024", &image];
    let output = Command::new("sh").args(["-c", script, "sh"]).args(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot write the data of the simulated drive to its image: "), "{said}");
    assert!(said.contains("File too large"), "{said}");
    done("mkfs -q -F -b 1024 @", &image);
    done("fsck -fn @", &path.display().to_string());
}

/// Seconds of a check by the clock of its simulated drive, and of its passes.
fn simulated_check(image: &str) -> Vec<f64> {
    let said: serde_json::Value = serde_json::from_str(&done("fsck -fn --json @", image)).unwrap();
    let passes = said["passes"].as_array().unwrap();
    let seconds = |value: &serde_json::Value| value["seconds"].as_f64().unwrap();
    std::iter::once(seconds(&said)).chain(passes.iter().map(seconds)).collect()
}

#[test]
fn a_simulated_drive_is_used_as_any_and_tells_its_own_times() {
    let scratch = Scratch::new();
    let tree = source(&scratch);
    let path = scratch.join("disk.img");
    fs::File::create(&path).unwrap().set_len(1 << 30).unwrap();
    let image = format!("model:hdd7200:{}", path.display());
    use_it(&image, &tree.join("file"));
    // Without the drive it is an image as any.
    let plain = path.display().to_string();
    assert_eq!(done("cat @:/dir/file", &plain).as_bytes(), TEXT);
    if tool("e2fsck").is_some() {
        e2fsck_fn(&path).unwrap();
    }
    let slow = simulated_check(&image);
    assert!(slow[0] > 0.02 && slow[1] > 0.01, "{slow:?}");
    assert_eq!(slow, simulated_check(&image));
    let fast = simulated_check(&format!("model:nvme:{plain}"));
    assert!(fast[0] * 4.0 < slow[0], "{fast:?} and {slow:?}");
    let told = done("fsck -fn -tt @", &image);
    assert!(told.contains("Pass 1: time: "), "{told}");

    let words = format!("build --threads 4 -F -q -o @ --size device {}", tree.display());
    done(&words, &image);
    assert_eq!(done("cat @:/file", &plain).as_bytes(), TEXT);
    if tool("e2fsck").is_some() {
        e2fsck_fn(&path).unwrap();
    }
    assert!(refused("mkfs -q @", &image).contains("an ext4 file system"));
    assert!(!scratch.join("disk.img.words").exists(), "nothing is left next to it");
    let refusal = refused("fsck -fn @", &format!("model:tape:{plain}"));
    assert!(refusal.contains("unknown drive (expected hdd7200,"), "{refusal}");
    let point = scratch.join("point");
    fs::create_dir(&point).unwrap();
    let refusal = refused(&format!("mount @ {}", point.display()), &image);
    assert!(refusal.contains("cannot mount a simulated drive"), "{refusal}");
}
