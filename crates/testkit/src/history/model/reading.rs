//! Directories that are read in pieces while names are added and removed.

use super::{Model, Reading};
use crate::history::{Answer, FileId};

impl Model {
    /// The valid answer of a subject that is asked for more names.
    pub(in crate::history) fn names_to_come(&self, dir: FileId, count: u64) -> Answer {
        let found = self.get(dir);
        let is_read = |name: &Vec<u8>| {
            found.reading.as_ref().is_some_and(|reading| reading.read.contains(name))
        };
        let names: Vec<_> = found
            .entries
            .keys()
            .filter(|name| !is_read(name))
            .take(count as usize)
            .cloned()
            .collect();
        Answer::NamesRead { is_end: (names.len() as u64) < count, names }
    }

    /// Processes the next names of a directory.
    pub(super) fn read_on(
        &mut self,
        dir: FileId,
        count: u64,
        names: &[Vec<u8>],
        is_end: bool,
    ) -> Result<(), String> {
        let found = self.get(dir);
        let mut reading = match &found.reading {
            Some(reading) => reading.clone(),
            None => Reading { left: found.entries.keys().cloned().collect(), ..Reading::default() },
        };
        for name in names {
            let shown = name.escape_ascii();
            if !found.entries.contains_key(name) {
                return Err(format!("{shown} is read and not there"));
            }
            if !reading.read.insert(name.clone()) {
                return Err(format!("{shown} is read twice"));
            }
            reading.left.remove(name);
        }
        if !is_end && (names.len() as u64) != count {
            return Err(format!("{} names instead of {count}, and not the end", names.len()));
        }
        if let Some(missed) = reading.left.first().filter(|_| is_end) {
            return Err(format!("{} was there all the time and not read", missed.escape_ascii()));
        }
        self.get_mut(dir).reading = (!is_end).then_some(reading);
        Ok(())
    }

    /// Handles a removed name: if it is added again, it may be read again, or not at all.
    pub(super) fn forget_read(&mut self, dir: FileId, name: &[u8]) {
        if self.get(dir).reading.is_none() {
            return;
        }
        if let Some(reading) = &mut self.get_mut(dir).reading {
            reading.left.remove(name);
            reading.read.remove(name);
        }
    }
}
