//! Commands on a volume of an NBD server that is 20 ms away, over a link of 1 Gbit/s: `cat` of one
//! file, `ls -lR`, `fsck -n`; next to nbdfuse, and to guestmount, where they are installed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_testkit::link::{GIGABIT, Traffic, link};
use extant_testkit::tool;

use super::Setting;
use super::table::Table;
use crate::Failure;

pub(super) const NAME: (&str, &str) =
    ("far", "cat, ls -lR and fsck -n of 160,000 files on an NBD server, 20 ms away");

const ROUND_TRIP: Duration = Duration::from_millis(20);
const FILES: u64 = 160_000;
const PER_DIRECTORY: u64 = 100;
const SIZE_GIB: u64 = 20;
/// How long a server or a mount may take to start.
const PATIENCE: Duration = Duration::from_secs(300);

/// A program that is ended with the measurement.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server at the far end of the link.
struct Far {
    _server: Program,
    /// The socket of the near end.
    near: PathBuf,
    traffic: Arc<Traffic>,
}

/// Runs the case if it is wanted, and prints its table.
pub(super) fn run(setting: &Setting, wanted: &[String]) -> Result<Option<Table>, Failure> {
    if !wanted.is_empty() && !wanted.iter().any(|name| name == NAME.0) {
        return Ok(None);
    }
    eprintln!("{}: preparing", NAME.0);
    let image = image(setting)?;
    let file = "/7/7/file99".to_owned();
    let mut table = Table::new(&["command", "by", "seconds", "requests", "MiB received"]);
    for (what, words) in [
        ("`cat` of one file", vec!["cat".to_owned(), format!("@:{file}")]),
        ("`ls -lR`", ["ls", "-lR", "@:/"].map(str::to_owned).to_vec()),
        ("`fsck -fn`", ["fsck", "-fn", "@"].map(str::to_owned).to_vec()),
    ] {
        let far = serve(setting, &image)?;
        let url = format!("nbd+unix:///?socket={}", far.near.display());
        let words = words.into_iter().map(|word| word.replace('@', &url));
        let mut command = Command::new(&setting.extant);
        command.args(words);
        table.add(measured(what, "extant", &far, &mut command));
    }
    for (peer, mount) in [("nbdfuse", nbdfuse as Mount), ("guestmount", guestmount)] {
        if tool(peer).is_none() {
            table.add(vec![String::new(), format!("{peer}: not installed")]);
            continue;
        }
        for (what, words) in [
            ("`cat` of one file", format!("cat @{file} >/dev/null")),
            ("`ls -lR`", "ls -lR @/ >/dev/null".to_owned()),
            ("`fsck -fn`", "e2fsck -fn % >/dev/null".to_owned()),
        ] {
            table.add(match by_peer(setting, &image, peer, mount, what, &words) {
                Ok(row) => row,
                Err(why) => vec![what.to_owned(), format!("{peer}: {why}")],
            });
        }
    }
    Ok(Some(table))
}

/// The image of a tree of small files.
fn image(setting: &Setting) -> Result<PathBuf, Failure> {
    let (image, tree) = (setting.dir.join("far.img"), setting.dir.join("far-tree"));
    let directories = (FILES / PER_DIRECTORY / setting.shrink).max(10);
    for directory in 0..directories {
        let path = tree.join(format!("{}/{directory}", directory % 10));
        fs::create_dir_all(&path)?;
        for file in 0..PER_DIRECTORY {
            fs::write(path.join(format!("file{file}")), format!("{directory} {file}\n"))?;
        }
    }
    let size = (SIZE_GIB << 10) / setting.shrink;
    let mut command = Command::new(&setting.extant);
    command.args(["build", "-q", "--size", &format!("{}M", size.max(256)), "-o"]);
    let built = command.arg(&image).arg(&tree).status()?;
    fs::remove_dir_all(&tree)?;
    match built.success() {
        true => Ok(image),
        false => Err("the image was not built".into()),
    }
}

fn serve(setting: &Setting, image: &Path) -> Result<Far, Failure> {
    let (near, far) = (setting.dir.join("far.near"), setting.dir.join("far.sock"));
    let _ = fs::remove_file(&near);
    let child = Command::new(&setting.extant)
        .args(["serve", "nbd", "--read-only", "--socket"])
        .arg(&far)
        .arg(image)
        .stdout(Stdio::piped())
        .spawn()?;
    let mut server = Program(child);
    // Its first line comes when it listens.
    let output = server.0.stdout.take().ok_or("no output of the server")?;
    BufReader::new(output).read_line(&mut String::new())?;
    UnixStream::connect(&far)?;
    let traffic = link(&near, &far, ROUND_TRIP, GIGABIT)?;
    Ok(Far { _server: server, near, traffic })
}

/// A row of the table for one command.
fn measured(what: &str, by: &str, far: &Far, command: &mut Command) -> Vec<String> {
    let before = (far.traffic.requests(), far.traffic.received());
    let started = Instant::now();
    let status = command.stdout(Stdio::null()).status();
    let seconds = started.elapsed().as_secs_f64();
    match status {
        Ok(status) if status.success() => {
            let requests = far.traffic.requests() - before.0;
            let received = (far.traffic.received() - before.1) as f64 / f64::from(1 << 20);
            let figures = [format!("{seconds:.2}"), requests.to_string(), format!("{received:.1}")];
            [vec![what.to_owned(), by.to_owned()], figures.to_vec()].concat()
        }
        Ok(status) => vec![what.to_owned(), format!("{by}: {status}")],
        Err(why) => vec![what.to_owned(), format!("{by}: {why}")],
    }
}

/// Mounts the volume of a server at a directory, and the file with the whole disk: its commands,
/// and what ends them.
type Mount = fn(&Far, &Path) -> Result<Mounted, Failure>;

/// A volume that a peer shows.
struct Mounted {
    /// The directory with the files of the volume.
    files: PathBuf,
    /// The disk, where it is shown.
    disk: Option<PathBuf>,
    /// Ends it.
    end: Vec<Vec<String>>,
    _held: Option<Program>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for words in &self.end {
            let _ = Command::new(&words[0]).args(&words[1..]).status();
        }
    }
}

fn by_peer(
    setting: &Setting,
    image: &Path,
    peer: &str,
    mount: Mount,
    what: &str,
    words: &str,
) -> Result<Vec<String>, Failure> {
    let far = serve(setting, image)?;
    let point = setting.dir.join("far-point");
    fs::create_dir_all(&point)?;
    let started = Instant::now();
    let mounted = mount(&far, &point)?;
    let took = started.elapsed().as_secs_f64();
    let script = words.replace('@', &mounted.files.display().to_string());
    let script = match (&mounted.disk, script.contains('%')) {
        (_, false) => script,
        (Some(disk), true) => script.replace('%', &disk.display().to_string()),
        (None, true) => return Err("does not show the disk".into()),
    };
    let by = format!("{peer} (its mount took {took:.2} s)");
    Ok(measured(what, &by, &far, Command::new("bash").args(["-c", &script])))
}

/// The disk as a file, and a loop mount by the kernel on it.
fn nbdfuse(far: &Far, point: &Path) -> Result<Mounted, Failure> {
    let (disk, files) = (point.join("disk"), point.join("files"));
    fs::create_dir_all(&disk)?;
    fs::create_dir_all(&files)?;
    let uri = format!("nbd+unix:///?socket={}", far.near.display());
    let child = Command::new("nbdfuse").arg(&disk).arg(uri).spawn()?;
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let (files_name, disk_name) = (files.display().to_string(), disk.display().to_string());
    let mounted = Mounted {
        files: files.clone(),
        disk: Some(disk.join("nbd")),
        end: vec![words(&["umount", &files_name]), words(&["fusermount3", "-u", &disk_name])],
        _held: Some(Program(child)),
    };
    let started = Instant::now();
    while !disk.join("nbd").exists() {
        if started.elapsed() > PATIENCE {
            return Err("nbdfuse does not start".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let status = Command::new("mount")
        .args(["-o", "loop,ro,noload"])
        .arg(disk.join("nbd"))
        .arg(&files)
        .status()?;
    if !status.success() {
        return Err("the kernel does not mount it".into());
    }
    Ok(mounted)
}

fn guestmount(far: &Far, point: &Path) -> Result<Mounted, Failure> {
    let uri = format!("nbd://?socket={}", far.near.display());
    let status = Command::new("guestmount")
        .args(["--ro", "--format=raw", "-a", &uri, "-m", "/dev/sda"])
        .arg(point)
        .status()?;
    if !status.success() {
        return Err("it does not mount the export".into());
    }
    let end = vec![vec!["guestunmount".to_owned(), point.display().to_string()]];
    Ok(Mounted { files: point.to_owned(), disk: None, end, _held: None })
}
