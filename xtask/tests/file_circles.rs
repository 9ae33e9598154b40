//! Files of one crate that use each other in a circle. The numbers below may only fall.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

/// Number of files in circles, for each crate that has any. extant: `FileSystem` opens files and
/// directories, and each keeps the file system that it is of. nbd: the connections of a client,
/// which `Client` keeps, are in a file of their own with its methods that need them.
const IN_CIRCLES: [(&str, usize); 2] = [("extant", 3), ("nbd", 2)];

/// Modules that tests alone use.
const FOR_TESTS: [&str; 3] = ["tests", "shuttle_tests", "testing"];

/// The path of a module or an item within its crate: `["alloc", "search"]`; the root is empty.
type ModulePath = Vec<String>;

/// One crate's files by their modules.
#[derive(Default)]
struct Crate {
    files: BTreeMap<ModulePath, Uses>,
}

/// The paths and names of one file.
#[derive(Default)]
struct Uses {
    /// Every path, from the crate's root.
    paths: Vec<ModulePath>,
    /// Names that the file imports or gives on (`pub use`), with the path of each: modules below it
    /// may name them through it.
    names: BTreeMap<String, ModulePath>,
    /// The paths that it gives on.
    exports: Vec<ModulePath>,
}

/// Reads one file. Paths are taken as the module they stand in sees them.
struct Reader<'a> {
    module: ModulePath,
    modules: &'a BTreeSet<ModulePath>,
    uses: Uses,
}

impl Reader<'_> {
    /// Whether the place read is not within a module written in the file.
    fn is_file(&self) -> bool {
        self.modules.contains(&self.module)
    }

    /// A path from the crate's root; `None` where it leads out of the crate.
    fn resolved(&self, path: &[String]) -> Option<ModulePath> {
        let mut base = self.module.clone();
        let rest = match path.first()?.as_str() {
            "crate" => return Some(path[1..].to_vec()),
            "self" => &path[1..],
            "super" => {
                let up = path.iter().take_while(|name| *name == "super").count();
                base.truncate(base.len().checked_sub(up)?);
                &path[up..]
            }
            first => {
                base.push(first.to_owned());
                let is_child = self.modules.contains(&base);
                base.pop();
                return is_child.then(|| [&base[..], path].concat());
            }
        };
        base.extend_from_slice(rest);
        Some(base)
    }

    fn read_use(&mut self, tree: &UseTree, before: &[String], is_export: bool) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            UseTree::Path(path) => return self.read_use(&path.tree, &with(&path.ident), is_export),
            UseTree::Group(group) => {
                return group.items.iter().for_each(|it| self.read_use(it, before, is_export));
            }
            UseTree::Name(name) if name.ident == "self" => {
                (before.to_vec(), before.last().cloned())
            }
            UseTree::Name(name) => (with(&name.ident), Some(name.ident.to_string())),
            UseTree::Rename(rename) => (with(&rename.ident), Some(rename.rename.to_string())),
            UseTree::Glob(_) => (before.to_vec(), None),
        };
        let Some(path) = self.resolved(&path) else { return };
        if let Some(name) = name.filter(|_| self.is_file()) {
            self.uses.names.insert(name, path.clone());
        }
        let paths = if is_export { &mut self.uses.exports } else { &mut self.uses.paths };
        paths.push(path);
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, module: &'ast ItemMod) {
        self.module.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let is_export = !matches!(item.vis, Visibility::Inherited);
        self.read_use(&item.tree, &[], is_export);
    }

    /// `pub(in crate::source)` uses nothing.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<_> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        if names.len() > 1 {
            self.uses.paths.extend(self.resolved(&names));
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}

/// Whether an attribute is `#[cfg(test)]`, or an `all` or `any` that names `test`.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().filter(|it| it.path().is_ident("cfg")).any(|it| {
        let mut found = false;
        // An error only ends the search: what `cfg` may hold is rustc's business.
        let _ = it.parse_nested_meta(|meta| {
            found |= meta.path.is_ident("test");
            if meta.path.is_ident("all") || meta.path.is_ident("any") {
                return meta.parse_nested_meta(|inner| {
                    found |= inner.path.is_ident("test");
                    Ok(())
                });
            }
            Ok(())
        });
        found
    })
}

fn crates() -> Vec<PathBuf> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace");
    let crates = fs::read_dir(workspace.join("crates")).expect("crates");
    let mut paths: Vec<_> = crates.map(|it| it.expect("an entry").path()).collect();
    paths.sort();
    paths
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).expect("a readable directory") {
        let path = entry.expect("a readable entry").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files
}

/// The module of a file, by its path below `src`.
fn module_of(path: &Path) -> ModulePath {
    let parts = path.with_extension("");
    let mut names: ModulePath =
        parts.iter().map(|it| it.to_str().expect("plain names").to_owned()).collect();
    let is_root = names.len() == 1 && (names[0] == "lib" || names[0] == "main");
    if is_root || names.last().is_some_and(|it| it == "mod") {
        names.pop();
    }
    names
}

impl Crate {
    fn read(sources: &Path) -> Self {
        let mut texts = BTreeMap::new();
        for path in rust_files(sources) {
            let module = module_of(path.strip_prefix(sources).expect("a file below it"));
            if !module.iter().any(|name| FOR_TESTS.contains(&name.as_str())) {
                let text = fs::read_to_string(&path).expect("text");
                texts.insert(module, text);
            }
        }
        let modules = texts.keys().cloned().collect();
        let mut read = Self::default();
        for (module, text) in &texts {
            // A file that is included as an expression is no module.
            let Ok(file) = syn::parse_file(text) else { continue };
            let (module, uses) = (module.clone(), Uses::default());
            let mut reader = Reader { module: module.clone(), modules: &modules, uses };
            reader.visit_file(&file);
            read.files.insert(module, reader.uses);
        }
        read
    }

    /// The file that defines what a path names: names that are given on lead further. `None` for
    /// names that the root defines: macros, and little else.
    fn file_of(&self, path: &[String]) -> Option<&ModulePath> {
        let mut path = path.to_vec();
        // A circle of exports does not compile; the bound is for paths that are taken wrongly.
        for _ in 0..8 {
            let depth = (0..=path.len()).rev().find(|it| self.files.contains_key(&path[..*it]))?;
            let (module, uses) = self.files.get_key_value(&path[..depth])?;
            let Some(next) = path.get(depth).and_then(|name| uses.names.get(name)) else {
                return Some(module).filter(|_| depth > 0);
            };
            path = [&next[..], &path[depth + 1..]].concat();
        }
        None
    }

    /// The files that each file uses. What a module gives on of modules below it is not a use.
    fn edges(&self) -> BTreeMap<&ModulePath, BTreeSet<&ModulePath>> {
        let edges_of = |(module, uses): (&'_ ModulePath, &Uses)| {
            let exports = uses.exports.iter().filter(|path| !path.starts_with(module));
            let paths = uses.paths.iter().chain(exports);
            let targets = paths.filter_map(|path| self.file_of(path));
            targets.filter(|target| *target != module).collect()
        };
        self.files.iter().map(|it| (it.0, edges_of(it))).collect()
    }

    /// The circles: groups of files of which each leads to each.
    fn circles(&self) -> BTreeSet<BTreeSet<&ModulePath>> {
        let edges = self.edges();
        let reached: BTreeMap<_, _> = edges.keys().map(|it| (*it, reach(&edges, it))).collect();
        let in_circle = reached.iter().filter(|(file, reached)| reached.contains(*file));
        in_circle
            .map(|(file, ahead)| {
                ahead.iter().copied().filter(|it| reached[it].contains(*file)).collect()
            })
            .collect()
    }
}

/// The files that one leads to.
fn reach<'a>(
    edges: &BTreeMap<&'a ModulePath, BTreeSet<&'a ModulePath>>,
    from: &ModulePath,
) -> BTreeSet<&'a ModulePath> {
    let mut reached = BTreeSet::new();
    let mut waiting: Vec<_> = edges[from].iter().copied().collect();
    while let Some(file) = waiting.pop() {
        if reached.insert(file) {
            waiting.extend(&edges[file]);
        }
    }
    reached
}

fn shown(circle: &BTreeSet<&ModulePath>) -> String {
    let name = |path: &&ModulePath| match path.is_empty() {
        true => "(root)".to_owned(),
        false => path.join("/"),
    };
    circle.iter().map(name).collect::<Vec<_>>().join(" ")
}

#[test]
fn files_in_circles_become_fewer() {
    let allowed = BTreeMap::from(IN_CIRCLES);
    let mut complaints = Vec::new();
    for path in crates() {
        let name = path.file_name().and_then(|it| it.to_str()).expect("a plain name");
        let read = Crate::read(&path.join("src"));
        let circles = read.circles();
        let found: usize = circles.iter().map(BTreeSet::len).sum();
        let allowed = allowed.get(name).copied().unwrap_or(0);
        if found != allowed {
            let word = if found < allowed { "fewer: lower the number" } else { "more" };
            complaints.push(format!("{name}: {found} files in circles, {allowed} known: {word}"));
            complaints.extend(circles.iter().map(|it| format!("  {} {}", it.len(), shown(it))));
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}
