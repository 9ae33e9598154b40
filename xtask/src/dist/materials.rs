//! The crates that are linked into the program, by cargo's own resolution: a bill of materials as
//! CycloneDX has it, and their licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{FEATURES, TARGET, output_of, time_of};
use crate::{Failure, machine};

/// The part of `cargo metadata` that is needed.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    license_file: Option<PathBuf>,
    source: Option<String>,
    manifest_path: PathBuf,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` for what is linked; else `dev` or `build`.
    kind: Option<String>,
}

impl Dependency {
    fn is_linked(&self) -> bool {
        self.dep_kinds.iter().any(|kind| kind.kind.is_none())
    }
}

/// The program and all crates that are linked into it.
pub(super) struct Materials {
    /// By their ids.
    packages: BTreeMap<String, Package>,
    /// Ids of what each needs.
    needs: BTreeMap<String, BTreeSet<String>>,
    program: String,
    /// Checksums of the registry, by name and version.
    checksums: BTreeMap<(String, String), String>,
}

impl Package {
    fn url(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    /// As an expression of SPDX: cargo also takes a slash for OR.
    fn expression(&self) -> Option<String> {
        let words = self.license.as_deref()?.replace('/', " OR ");
        Some(words.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}

impl Materials {
    pub(super) fn read() -> Result<Self, Failure> {
        let mut metadata = machine::cargo();
        metadata.args(["metadata", "--format-version", "1", "--locked"]);
        metadata.args(["--filter-platform", TARGET, "--manifest-path", "crates/cli/Cargo.toml"]);
        metadata.args(FEATURES);
        let found: Metadata = serde_json::from_slice(&output_of(metadata)?)?;
        let mut all: BTreeMap<String, Package> =
            found.packages.into_iter().map(|package| (package.id.clone(), package)).collect();
        let nodes: BTreeMap<&str, &Node> =
            found.resolve.nodes.iter().map(|node| (&node.id[..], node)).collect();
        let program = all.values().find(|package| package.name == "extant-cli");
        let program = program.ok_or("cargo metadata does not list extant-cli")?.id.clone();
        let (mut needs, mut waiting) = (BTreeMap::new(), vec![program.clone()]);
        while let Some(id) = waiting.pop() {
            let Some(node) = nodes.get(&id[..]).filter(|_| !needs.contains_key(&id)) else {
                continue;
            };
            let linked = node.deps.iter().filter(|it| it.is_linked());
            let below: BTreeSet<String> = linked.map(|it| it.pkg.clone()).collect();
            waiting.extend(below.iter().cloned());
            needs.insert(id, below);
        }
        all.retain(|id, _| needs.contains_key(id));
        let lock = fs::read_to_string(machine::workspace().join("Cargo.lock"))?;
        Ok(Self { packages: all, needs, program, checksums: checksums(&lock) })
    }

    /// The bill of materials.
    pub(super) fn bill(&self, epoch: u64) -> Result<Value, Failure> {
        let component = |package: &Package, kind: &str| {
            let url = package.url();
            let mut component = json!({
                "type": kind,
                "bom-ref": url,
                "name": package.name,
                "version": package.version,
                "purl": url,
            });
            if let Some(expression) = package.expression() {
                component["licenses"] = json!([{"expression": expression}]);
            }
            let key = (package.name.clone(), package.version.clone());
            if let Some(checksum) = self.checksums.get(&key) {
                component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
            }
            component
        };
        let program = self.packages.get(&self.program).ok_or("the program is not a package")?;
        let mut others: Vec<_> =
            self.packages.values().filter(|package| package.id != self.program).collect();
        others.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
        let url = |id: &String| self.packages.get(id).map(Package::url);
        let mut dependencies: Vec<Value> = self
            .needs
            .iter()
            .map(|(id, below)| {
                let mut below: Vec<_> = below.iter().filter_map(url).collect();
                below.sort();
                json!({"ref": url(id), "dependsOn": below})
            })
            .collect();
        dependencies.sort_by_key(|it| it["ref"].to_string());
        Ok(json!({
            "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
            "bomFormat": "CycloneDX",
            "specVersion": "1.5",
            "version": 1,
            "metadata": {
                "timestamp": time_of(epoch)?,
                "component": component(program, "application"),
            },
            "components": others.iter().map(|it| component(it, "library")).collect::<Vec<_>>(),
            "dependencies": dependencies,
        }))
    }

    /// The licence of each crate, and the texts that the crates have, each once.
    pub(super) fn licences(&self) -> Result<String, Failure> {
        let mut list = String::from(
            "extant is licensed under MIT or Apache-2.0, as you choose.\n\
             It is linked with these crates of crates.io, whose licences follow:\n\n",
        );
        let mut texts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for package in self.packages.values() {
            let name = format!("{} {}", package.name, package.version);
            let dir = package.manifest_path.parent().unwrap_or(Path::new("."));
            // The crates of the workspace have the licences of its root.
            let dir = if package.source.is_none() { machine::workspace() } else { dir };
            if package.source.is_some() {
                let licence = package.expression().unwrap_or_else(|| "see its text".to_owned());
                writeln!(list, "{name}: {licence}")?;
            }
            for text in texts_in(dir, package.license_file.as_deref())? {
                texts.entry(text).or_default().insert(name.clone());
            }
        }
        for (text, names) in texts {
            let names = names.into_iter().collect::<Vec<_>>().join(", ");
            let line = "-".repeat(78);
            write!(list, "\n{line}\n{names}\n{line}\n{}\n", text.trim_end())?;
        }
        Ok(list)
    }
}

/// The texts of licences in a directory of a crate.
fn texts_in(dir: &Path, named: Option<&Path>) -> Result<Vec<String>, Failure> {
    const BEGINNINGS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];
    let is_one = |path: &Path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        path.is_file() && BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
    };
    let entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let mut paths: Vec<_> = entries.iter().map(|entry| entry.path()).collect();
    paths.retain(|path| is_one(path));
    paths.extend(named.map(|path| dir.join(path)).filter(|path| !paths.contains(path)));
    paths.sort();
    let read = |path: &PathBuf| Ok(String::from_utf8_lossy(&fs::read(path)?).replace('\r', ""));
    paths.iter().map(read).collect()
}

/// The checksums in a `Cargo.lock`, by name and version.
fn checksums(lock: &str) -> BTreeMap<(String, String), String> {
    let value = |block: &str, key: &str| {
        let line = block.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \""));
        line.and_then(|rest| rest.strip_suffix('"')).map(str::to_owned)
    };
    let blocks = lock.split("[[package]]").filter_map(|block| {
        let key = (value(block, "name")?, value(block, "version")?);
        Some((key, value(block, "checksum")?))
    });
    blocks.collect()
}
