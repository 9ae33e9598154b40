//! Possible contents of a file after a crash: in each sector what it had when it was last made
//! durable, or anything since.

use std::collections::BTreeMap;

const SECTOR: usize = 512;

/// The contents of a file, and those that a crash may bring back.
#[derive(Clone, Debug, Default)]
pub(super) struct Contents {
    now: Vec<u8>,
    /// Contents of sectors since the file was last made durable, padded with zeros; their present
    /// contents are not here.
    earlier: BTreeMap<usize, Vec<Vec<u8>>>,
    /// The sizes since then.
    least: usize,
    most: usize,
}

impl Contents {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.now
    }

    /// A change of bytes from `offset` on; the file grows where it ends before.
    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        let end = offset + bytes.len();
        // Bytes between the old end and the offset become zeros.
        self.note(offset.min(self.now.len()), end);
        if self.now.len() < end {
            self.now.resize(end, 0);
        }
        self.now[offset..end].copy_from_slice(bytes);
        self.most = self.most.max(self.now.len());
    }

    pub(super) fn truncate(&mut self, size: usize) {
        let (low, high) = (size.min(self.now.len()), size.max(self.now.len()));
        self.note(low, high);
        self.now.resize(size, 0);
        self.least = self.least.min(size);
        self.most = self.most.max(size);
    }

    /// Sectors that must hold what they held when the file was last made durable.
    pub(super) fn certain(&self) -> u64 {
        let sectors = 0..self.least.div_ceil(SECTOR);
        sectors.filter(|sector| !self.earlier.contains_key(sector)).count() as u64
    }

    /// The present state is durable.
    pub(super) fn acknowledge(&mut self) {
        self.earlier.clear();
        (self.least, self.most) = (self.now.len(), self.now.len());
    }

    /// Why a crash cannot have left this, if it cannot. Where requests of the disk have failed
    /// (`has_failed`) one write may be lost and a later one to the same sector kept: each byte is
    /// judged for itself then.
    pub(super) fn refuses(&self, found: &[u8], has_failed: bool) -> Option<String> {
        if !(self.least..=self.most).contains(&found.len()) {
            return Some(format!(
                "it has {} bytes, {} to {} are right",
                found.len(),
                self.least,
                self.most
            ));
        }
        found.chunks(SECTOR).enumerate().find_map(|(sector, bytes)| {
            let mut versions = vec![self.sector(sector)];
            versions.extend(self.earlier.get(&sector).into_iter().flatten().cloned());
            // Growth that nothing made durable may have left a hole.
            let durable = self.least.saturating_sub(sector * SECTOR);
            if durable < SECTOR {
                let mut holes = versions.clone();
                holes.iter_mut().for_each(|hole| hole[durable..].fill(0));
                versions.append(&mut holes);
            }
            let is_version = |content: &Vec<u8>| content[..bytes.len()] == *bytes;
            let is_of_some = |(at, byte): (usize, &u8)| versions.iter().any(|it| it[at] == *byte);
            let is_right = versions.iter().any(is_version)
                || (has_failed && bytes.iter().enumerate().all(is_of_some));
            (!is_right).then(|| {
                let versions = versions.len();
                let bytes = &bytes[..bytes.len().min(32)];
                format!("sector {sector} has none of its {versions} versions: {bytes:02x?}…")
            })
        })
    }

    /// Keeps the contents of the sectors that a change of these bytes touches.
    fn note(&mut self, start: usize, end: usize) {
        for sector in start / SECTOR..end.div_ceil(SECTOR) {
            let content = self.sector(sector);
            let versions = self.earlier.entry(sector).or_default();
            if versions.last() != Some(&content) {
                versions.push(content);
            }
        }
    }

    fn sector(&self, sector: usize) -> Vec<u8> {
        let start = (sector * SECTOR).min(self.now.len());
        let end = (start + SECTOR).min(self.now.len());
        let mut content = self.now[start..end].to_vec();
        content.resize(SECTOR, 0);
        content
    }
}

/// Whether a name is there, and what its file holds, after a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    /// By name: the states since the names were last made durable, the present one last. `None`: it
    /// is not there.
    states: BTreeMap<String, Vec<Option<Vec<u8>>>>,
}

impl Names {
    pub(super) fn set(&mut self, name: &str, content: Option<Vec<u8>>) {
        self.states.entry(name.to_owned()).or_insert_with(|| vec![None]).push(content);
    }

    /// Those that are there.
    pub(super) fn present(&self) -> Vec<String> {
        let is_there = |states: &[Option<Vec<u8>>]| states.last().is_some_and(Option::is_some);
        let names = self.states.iter().filter(|(_, states)| is_there(states));
        names.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn content(&self, name: &str) -> Option<Vec<u8>> {
        self.states.get(name)?.last()?.clone()
    }

    /// The present state of this name is durable.
    pub(super) fn acknowledge_one(&mut self, name: &str) {
        if let Some(states) = self.states.get_mut(name) {
            states.drain(..states.len() - 1);
        }
    }

    /// The present state of all names is durable.
    pub(super) fn acknowledge(&mut self) {
        for states in self.states.values_mut() {
            states.drain(..states.len() - 1);
        }
    }

    /// Names whose state is certain.
    pub(super) fn certain(&self) -> u64 {
        self.states.values().filter(|states| states.len() == 1).count() as u64
    }

    /// Why a crash cannot have left these names, if it cannot; `read` gives what a name holds.
    pub(super) fn refuses(&self, read: impl Fn(&str) -> Option<Vec<u8>>) -> Option<String> {
        self.states.iter().find_map(|(name, states)| {
            let found = read(name);
            // A file that was made and not synced may be empty or shorter.
            let is_begun = |state: &Option<Vec<u8>>| match (state, &found) {
                (Some(state), Some(found)) => states.len() > 1 && state.starts_with(found),
                _ => false,
            };
            let is_right = states.contains(&found) || states.iter().any(is_begun);
            (!is_right).then(|| {
                let text = |state: &Option<Vec<u8>>| match state {
                    Some(bytes) => format!("{} bytes", bytes.len()),
                    None => "absent".to_owned(),
                };
                let states: Vec<_> = states.iter().map(text).collect();
                format!("{name}: {}, right: {}", text(&found), states.join(" or "))
            })
        })
    }
}

#[test]
fn a_model_refuses_what_was_durable_and_is_gone() {
    let mut contents = Contents::default();
    contents.write(0, &[1; 1500]);
    contents.acknowledge();
    assert_eq!(contents.refuses(&[1; 1500], false), None);
    assert!(
        contents.refuses(&[1; 1024], false).is_some()
            && contents.refuses(&[0; 1500], false).is_some()
    );
    contents.write(1024, &[2; 1024]);
    let old_then_new = [vec![1; 1024], vec![2; 476]].concat();
    assert_eq!(contents.refuses(&old_then_new, false), None);
    assert_eq!(contents.refuses(&[vec![1; 1500], vec![0; 548]].concat(), false), None);
    assert!(contents.refuses(&[vec![2; 512], vec![1; 988]].concat(), false).is_some());
    let hole = [vec![1; 1500], vec![0; 548]].concat();
    assert_eq!(contents.refuses(&hole, false), None);
    assert!(contents.refuses(&[vec![1; 1024], vec![0; 1024]].concat(), true).is_some());
    // The first of two writes to a sector is lost.
    contents.acknowledge();
    contents.write(0, &[3; 10]);
    contents.write(10, &[4; 10]);
    let second = [vec![1; 10], vec![4; 10], vec![1; 1004], vec![2; 1024]].concat();
    assert!(contents.refuses(&second, false).is_some());
    assert_eq!(contents.refuses(&second, true), None);
    assert!(contents.refuses(&[1; 2048], true).is_some());
    contents.truncate(600);
    contents.write(0, &[1; 600]);
    contents.acknowledge();
    assert_eq!(contents.refuses(&[1; 600], false), None);
    assert!(contents.refuses(&[1; 700], false).is_some());
}

#[test]
fn a_model_of_names_refuses_what_was_durable_and_is_gone() {
    let mut names = Names::default();
    names.set("a", Some(b"text".to_vec()));
    let there = |name: &str| (name == "a").then(|| b"text".to_vec());
    assert_eq!((names.refuses(there), names.refuses(|_| None)), (None, None));
    assert_eq!(names.refuses(|_| Some(b"te".to_vec())), None);
    names.acknowledge();
    assert!(names.refuses(|_| None).is_some() && names.refuses(|_| Some(Vec::new())).is_some());
    names.set("a", None);
    names.set("b", Some(b"text".to_vec()));
    let moved = |name: &str| (name == "b").then(|| b"text".to_vec());
    assert_eq!((names.refuses(there), names.refuses(moved)), (None, None));
    names.acknowledge();
    assert_eq!((names.refuses(moved), names.certain()), (None, 2));
    assert!(names.refuses(there).is_some());
}
