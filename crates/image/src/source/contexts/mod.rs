//! SELinux labels by a file_contexts file, as setfiles gives them.
//!
//! selabel_file(5), file_contexts(5) and setfiles(8) describe the files; the order of
//! specifications and of aliases is what setfiles of libselinux 3.4 is seen to do. The last
//! specification that matches counts, those without an expression after all others. Of aliases the
//! last one counts too; those of `.subs` are applied first, and `.subs_dist` to what they give.

mod pattern;

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::error::SourceError;
use super::lines;
use super::node::NodeKind;
use pattern::Pattern;

/// First bytes of a compiled file, which selabel_file(5) calls `file_contexts.bin`.
const COMPILED: [u8; 4] = [0x8a, 0xff, 0x7c, 0xf9];

/// A line of the files.
#[derive(Debug)]
struct Spec {
    pattern: Pattern,
    /// `None`: every type.
    kind: Option<NodeKind>,
    /// Ends with a NUL, as the kernel and setfiles store it; `None` for `<<none>>`.
    label: Option<Box<[u8]>>,
}

/// A path that is looked up as if it were another.
#[derive(Debug)]
struct Alias {
    from: Vec<u8>,
    to: Vec<u8>,
}

/// The specifications of a file and its neighbours, in the order of their weight.
#[derive(Debug)]
pub(super) struct FileContexts {
    specs: Vec<Spec>,
    /// Of `.subs` and of `.subs_dist`.
    aliases: [Vec<Alias>; 2],
}

/// Specifications by number; a later one has more weight.
pub(super) type Candidates = Vec<u32>;

impl FileContexts {
    /// Reads the file, and those that are next to it: `.homedirs` and `.local` with more
    /// specifications, `.subs` and `.subs_dist` with aliases.
    pub(super) fn read(path: &Path) -> Result<Self, SourceError> {
        let mut specs = read_specs(path)?;
        for suffix in [".homedirs", ".local"] {
            let path = with_suffix(path, suffix);
            if path.exists() {
                specs.append(&mut read_specs(&path)?);
            }
        }
        // Stable: otherwise the order of the files counts.
        specs.sort_by_key(|spec| spec.pattern.is_exact);
        let mut aliases = [Vec::new(), Vec::new()];
        for (aliases, suffix) in aliases.iter_mut().zip([".subs", ".subs_dist"]) {
            let path = with_suffix(path, suffix);
            if path.exists() {
                *aliases = read_aliases(&path)?;
            }
        }
        Ok(Self { specs, aliases })
    }

    /// All specifications.
    pub(super) fn all(&self) -> Candidates {
        (0..self.specs.len() as u32).collect()
    }

    /// The path that is looked up in place of this one.
    pub(super) fn aliased<'p>(&self, path: &'p [u8]) -> Cow<'p, [u8]> {
        let mut path = Cow::Borrowed(path);
        for aliases in &self.aliases {
            let found = aliases.iter().rev().find_map(|alias| {
                let rest = path.strip_prefix(&alias.from[..])?;
                let is_whole = rest.first().is_none_or(|&byte| byte == b'/');
                is_whole.then(|| [&alias.to[..], rest].concat())
            });
            if let Some(found) = found {
                path = Cow::Owned(if found.is_empty() { b"/".to_vec() } else { found });
            }
        }
        path
    }

    /// Those of `candidates` that a path with this beginning may match.
    pub(super) fn below(&self, candidates: &[u32], beginning: &[u8]) -> Candidates {
        let may_match = |&&number: &&u32| {
            let prefix = &self.specs[number as usize].pattern.prefix;
            let common = prefix.len().min(beginning.len());
            prefix[..common] == beginning[..common]
        };
        candidates.iter().filter(may_match).copied().collect()
    }

    /// The specification of a path, after aliases were applied.
    pub(super) fn find(&self, candidates: &[u32], path: &[u8], kind: NodeKind) -> Option<u32> {
        let matches = |&number: &u32| {
            let spec = &self.specs[number as usize];
            spec.kind.is_none_or(|of| of == kind) && spec.pattern.matches(path)
        };
        candidates.iter().copied().rev().find(matches)
    }

    /// The label of a specification; `None` if files keep theirs.
    pub(super) fn label(&self, number: u32) -> Option<&[u8]> {
        self.specs[number as usize].label.as_deref()
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn read_specs(path: &Path) -> Result<Vec<Spec>, SourceError> {
    let text = lines::read(path)?;
    if text.starts_with(&COMPILED) {
        let why = "is compiled (use the text file that it was made from)";
        return Err(lines::broken(path, 1, why));
    }
    let lines: Vec<(usize, &[u8])> = lines::numbered(&text).collect();
    let fields: Vec<Vec<&[u8]>> = lines.iter().map(|(_, line)| lines::fields(line)).collect();
    let specs: Vec<Result<Spec, String>> = fields.par_iter().map(|fields| spec(fields)).collect();
    let mut found = Vec::with_capacity(specs.len());
    let mut seen: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (at, spec) in specs.into_iter().enumerate() {
        let line = lines[at].0;
        let spec: Spec = spec.map_err(|why| lines::broken(path, line, why))?;
        let earlier = seen.entry(fields[at][0]).or_default();
        for &other in earlier.iter() {
            let other_spec: &Spec = &found[other];
            let meets = match (spec.kind, other_spec.kind) {
                (Some(one), Some(two)) => one == two,
                _ => true,
            };
            if meets && spec.label != other_spec.label {
                let why = format!("another label than in line {}", lines[other].0);
                return Err(lines::broken(path, line, why));
            }
        }
        earlier.push(at);
        found.push(spec);
    }
    Ok(found)
}

fn spec(fields: &[&[u8]]) -> Result<Spec, String> {
    let (pattern, kind, label) = match *fields {
        [pattern, label] => (pattern, None, label),
        [pattern, kind, label] => (pattern, Some(kind), label),
        _ => return Err(format!("{} fields instead of PATH [TYPE] LABEL", fields.len())),
    };
    let kind = match kind {
        None => None,
        Some(b"--") => Some(NodeKind::Regular),
        Some(b"-d") => Some(NodeKind::Directory),
        Some(b"-l") => Some(NodeKind::Symlink),
        Some(b"-c") => Some(NodeKind::CharDevice),
        Some(b"-b") => Some(NodeKind::BlockDevice),
        Some(b"-p") => Some(NodeKind::Fifo),
        Some(b"-s") => Some(NodeKind::Socket),
        Some(other) => {
            let other = other.escape_ascii();
            return Err(format!("unknown type {other} (expected --, -b, -c, -d, -l, -p or -s)"));
        }
    };
    let pattern = Pattern::parse(pattern)?;
    let label = if label == b"<<none>>" { None } else { Some(lines::label(label)?) };
    Ok(Spec { pattern, kind, label })
}

fn read_aliases(path: &Path) -> Result<Vec<Alias>, SourceError> {
    let text = lines::read(path)?;
    let mut aliases = Vec::new();
    for (number, line) in lines::numbered(&text) {
        let [from, to] = lines::fields(line)[..] else {
            return Err(lines::broken(path, number, "not the form ALIAS PATH"));
        };
        // setfiles finds nothing by an alias that ends with a slash.
        let is_plain = |path: &[u8]| path.starts_with(b"/") && !path.ends_with(b"/");
        if !is_plain(from) || !(is_plain(to) || to == b"/") {
            let why = "both paths must begin with a slash and not end with one";
            return Err(lines::broken(path, number, why));
        }
        let to = if to == b"/" { Vec::new() } else { to.to_vec() };
        aliases.push(Alias { from: from.to_vec(), to });
    }
    Ok(aliases)
}
