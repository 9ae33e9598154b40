//! `cargo xtask demo`: the main job on a real tree of this machine, from build to comparison.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use extant_testkit::{Kind, TreeSnapshot, differences, is_root, tool};
use serde_json::json;

use crate::{Failure, machine};

/// Trees that a machine is likely to have, best first.
const TREES: [&str; 5] = ["/usr/share", "/usr/lib", "/usr/include", "/usr/bin", "/etc"];
/// The largest tree that is taken unasked, so that the demo stays a matter of a minute or two.
const LARGEST: u64 = 3 << 30;
/// The image, the copy and room to breathe, in multiples of the tree.
const ROOM: u64 = 3;

/// Make an image of a real tree of this machine, check it, read it back, compare, report
#[derive(clap::Args)]
pub(crate) struct Demo {
    /// The tree to use, instead of one chosen by size
    #[arg(long)]
    tree: Option<PathBuf>,
    /// Where the report goes, and for a while the image and the copy
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Leave the image and the copy in place
    #[arg(long)]
    keep: bool,
    /// Leave the small experiments (`extant lab quick`) out, which take some minutes
    #[arg(long)]
    no_lab: bool,
}

/// One step of the demo as the report shows it.
struct Step {
    name: &'static str,
    command: String,
    seconds: f64,
    /// The result, in a few words.
    note: String,
}

/// A tree as it will be read: what counts for the figures.
struct Tree {
    root: PathBuf,
    entries: u64,
    bytes: u64,
}

impl Demo {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let extant = machine::release_binary()?;
        let out = self.out.unwrap_or_else(|| machine::target_dir().join("demo"));
        fs::create_dir_all(&out)?;
        let tree = match self.tree {
            Some(root) => Tree::of(&root)?.ok_or("there are files in the tree we may not read")?,
            None => choose(&out)?,
        };
        println!(
            "tree {}: {} entries, {:.0} MB; this takes a minute or two",
            tree.root.display(),
            tree.entries,
            tree.bytes as f64 / 1e6
        );
        let (image, copy) = (out.join("demo.img"), out.join("copy"));
        clear(&image, &copy)?;
        let mut steps = Vec::new();
        let outcome = go(&extant, &tree, &image, &copy, &out, &mut steps);
        let image_bytes = fs::metadata(&image).map(|image| image.blocks() * 512).unwrap_or(0);
        let (version, _) = timed(Command::new(&extant).arg("--version"))?;
        report(&out, version.trim_end(), &tree, image_bytes, &steps, &outcome)?;
        if !self.keep {
            clear(&image, &copy)?;
        }
        println!("report: {}", out.join("report.md").display());
        outcome?;
        if !self.no_lab {
            experiments(&extant, &out.join("lab"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn go(
    extant: &Path,
    tree: &Tree,
    image: &Path,
    copy: &Path,
    out: &Path,
    steps: &mut Vec<Step>,
) -> Result<(), Failure> {
    let run = |steps: &mut Vec<Step>, name, args: &[&Path]| -> Result<String, Failure> {
        let mut command = Command::new(extant);
        command.args(args);
        let (text, seconds) = timed(&mut command)?;
        steps.push(Step { name, command: shown("extant", args), seconds, note: String::new() });
        Ok(text)
    };
    let named = |path: &str| {
        let mut name = image.as_os_str().to_owned();
        name.push(path);
        PathBuf::from(name)
    };
    let p = Path::new;

    run(steps, "build", &[p("build"), p("-o"), image, &tree.root])?;
    rate(steps, tree.bytes);

    check(extant, image, steps)?;

    let text = run(steps, "list", &[p("ls"), p("-R"), p("-a"), p("-1"), &named(":/")])?;
    let listed = text.lines().filter(|line| !line.is_empty()).count();
    note(steps, &format!("{listed} lines"));

    run(steps, "read back", &[p("cp"), p("-r"), p("-p"), &named(":/."), copy])?;
    rate(steps, tree.bytes);

    run(steps, "picture", &[p("map"), p("--svg"), p("-o"), &out.join("map.svg"), image])?;

    let started = Instant::now();
    let expected = comparable(TreeSnapshot::of_dir(&tree.root)?);
    let found = comparable(TreeSnapshot::of_dir(copy)?.without("lost+found"));
    let lines = differences(&expected, &found);
    steps.push(Step {
        name: "compare",
        command: "path, type, mode, owner, size, links, times, attributes, contents".into(),
        seconds: started.elapsed().as_secs_f64(),
        note: format!("{} entries, {} differences", expected.entries.len(), lines.len()),
    });
    if !lines.is_empty() {
        return Err(
            format!("the copy differs:\n{}", lines[..lines.len().min(20)].join("\n")).into()
        );
    }
    Ok(())
}

/// All experiments of the lab, small, run again.
fn experiments(extant: &Path, out: &Path) -> Result<(), Failure> {
    if out.exists() {
        fs::remove_dir_all(out)?;
    }
    let status = Command::new(extant).args(["lab", "quick", "--out"]).arg(out).status()?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("extant lab quick: {status}").into()),
    }
}

/// Our own checker, and e2fsck where it is installed.
fn check(extant: &Path, image: &Path, steps: &mut Vec<Step>) -> Result<(), Failure> {
    let (_, seconds) = timed(Command::new(extant).args(["fsck", "-fn"]).arg(image))?;
    let command = shown("extant", &[Path::new("fsck"), Path::new("-fn"), image]);
    steps.push(Step { name: "check", command, seconds, note: "clean".into() });
    let command = shown("e2fsck", &[Path::new("-fn"), image]);
    let (seconds, note) = match tool("e2fsck") {
        Some(e2fsck) => {
            let (_, seconds) = timed(e2fsck.command_within(600).arg("-fn").arg(image))?;
            (seconds, "clean")
        }
        None => (0.0, "skipped: e2fsck is not installed"),
    };
    steps.push(Step { name: "check by e2fsck", command, seconds, note: note.into() });
    Ok(())
}

/// Leaves out what a copy cannot have: names outside of the tree, and as an ordinary user other
/// owners and the attributes that only root sets.
fn comparable(tree: TreeSnapshot) -> TreeSnapshot {
    let root = is_root();
    tree.map(|entry| {
        if entry.kind != Kind::Directory {
            entry.links = 0; // which names share an inode is compared
        }
        if !root {
            (entry.uid, entry.gid) = (0, 0);
            entry
                .xattrs
                .retain(|name, _| name.starts_with(b"user.") || name.starts_with(b"system."));
        }
    })
}

impl Tree {
    /// Counts a tree; None where there is something that we may not read.
    fn of(root: &Path) -> Result<Option<Self>, Failure> {
        let mut tree = Self { root: root.to_owned(), entries: 0, bytes: 0 };
        let mut waiting = vec![root.to_owned()];
        while let Some(path) = waiting.pop() {
            let metadata = fs::symlink_metadata(&path)?;
            tree.entries += 1;
            if metadata.is_file() {
                tree.bytes += metadata.len();
                if File::open(&path).is_err() {
                    return Ok(None);
                }
            } else if metadata.is_dir() {
                let Ok(list) = fs::read_dir(&path) else { return Ok(None) };
                for child in list {
                    waiting.push(child?.path());
                }
            }
        }
        Ok(Some(tree))
    }
}

/// The first of the usual trees that is readable and leaves room on the disk.
fn choose(out: &Path) -> Result<Tree, Failure> {
    let limit = LARGEST.min(machine::free_bytes(out)? / ROOM);
    for root in TREES.iter().map(Path::new).filter(|root| root.is_dir()) {
        match Tree::of(root)? {
            Some(tree) if tree.bytes <= limit => return Ok(tree),
            Some(_) => println!("{} is too large for the free space", root.display()),
            None => println!("{} has files we may not read", root.display()),
        }
    }
    Err("no tree of this machine fits; name one with --tree".into())
}

/// Runs a command that must succeed; standard output and seconds.
fn timed(command: &mut Command) -> Result<(String, f64), Failure> {
    let started = Instant::now();
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{said}", output.status).into());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok((text, started.elapsed().as_secs_f64()))
}

fn rate(steps: &mut [Step], bytes: u64) {
    if let Some(step) = steps.last_mut() {
        step.note = format!("{:.0} MB/s", bytes as f64 / 1e6 / step.seconds.max(1e-3));
    }
}

fn note(steps: &mut [Step], text: &str) {
    if let Some(step) = steps.last_mut() {
        step.note = text.to_owned();
    }
}

/// A command as a reader would type it, without the directories of this machine.
fn shown(program: &str, args: &[&Path]) -> String {
    let names = args.iter().map(|arg| match arg.to_str() {
        Some(text) if text.contains("/demo/") => text.rsplit("/demo/").next().unwrap_or(text),
        Some(text) => text,
        None => "?",
    });
    names.fold(program.to_owned(), |line, name| line + " " + name)
}

fn clear(image: &Path, copy: &Path) -> Result<(), Failure> {
    if image.exists() {
        fs::remove_file(image)?;
    }
    if copy.exists() {
        fs::remove_dir_all(copy)?;
    }
    Ok(())
}

fn report(
    out: &Path,
    version: &str,
    tree: &Tree,
    image_bytes: u64,
    steps: &[Step],
    outcome: &Result<(), Failure>,
) -> Result<(), Failure> {
    let result = match outcome {
        Ok(()) => "the copy read back from the image equals the source".to_owned(),
        Err(failure) => format!("failed: {failure}"),
    };
    let (made, machine) = (machine::now_in_words()?, machine::in_words());
    let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
    let figures = json!({
        "date": made,
        "extant": version,
        "machine": machine,
        "seconds": seconds,
        "tree": tree.root.display().to_string(),
        "entries": tree.entries,
        "bytes": tree.bytes,
        "image_bytes": image_bytes,
        "result": result,
        "ok": outcome.is_ok(),
        "steps": steps.iter().map(|step| json!({
            "name": step.name,
            "command": step.command,
            "seconds": step.seconds,
            "mb_per_second": tree.bytes as f64 / 1e6 / step.seconds.max(1e-3),
            "note": step.note,
        })).collect::<Vec<_>>(),
    });
    fs::write(out.join("report.json"), serde_json::to_string_pretty(&figures)? + "\n")?;
    let rows = steps.iter().map(|step| {
        format!("| {} | `{}` | {:.2} | {} |\n", step.name, step.command, step.seconds, step.note)
    });
    let text = format!(
        "# Demo\n{version}, {made}, {machine}. All steps took {seconds:.0} s.\n\n\
         Tree `{}`: {} entries, {:.1} MB. The image holds {:.1} MB on disk. Result: {result}.\n\n\
         | step | command | seconds | note |\n|---|---|---|---|\n{}",
        tree.root.display(),
        tree.entries,
        tree.bytes as f64 / 1e6,
        image_bytes as f64 / 1e6,
        rows.collect::<String>(),
    );
    fs::write(out.join("report.md"), &text)?;
    println!("\n{text}");
    Ok(())
}
