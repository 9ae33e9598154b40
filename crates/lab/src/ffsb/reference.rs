//! Profiles with the parameters of published runs.

/// A profile that is shipped. Its location is to be replaced by the user's.
#[derive(Clone, Copy, Debug)]
pub struct Reference {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its purpose and origin, in a line.
    pub about: &'static str,
    /// The profile.
    pub text: &'static str,
}

/// All of them.
pub const REFERENCES: [Reference; 6] = [
    Reference {
        name: "large-file-create",
        about: "128 threads make files of 1 GiB for 600 s (Bull, 2008: document 003)",
        text: include_str!("../../profiles/large-file-create.ffsb"),
    },
    Reference {
        name: "large-file-create-2007",
        about: "64 threads make files of 1 GiB for 300 s (Bull, 2007, who took 4 and 16 too)",
        text: include_str!("../../profiles/large-file-create-2007.ffsb"),
    },
    Reference {
        name: "mixed",
        about: "128 threads read, make and overwrite small files for 1800 s (Bull)",
        text: include_str!("../../profiles/mixed.ffsb"),
    },
    Reference {
        name: "sequential-reads",
        about: "128 threads read 1024 files of 100 MB for 300 s (Boxacle, on an array; 1 and 16 too)",
        text: include_str!("../../profiles/sequential-reads.ffsb"),
    },
    Reference {
        name: "sequential-creates",
        about: "128 threads make files of 1 GB in pieces of 4 KiB for 300 s (Boxacle, on an array; 1 and 16 too)",
        text: include_str!("../../profiles/sequential-creates.ffsb"),
    },
    Reference {
        name: "sequential-creates-disk",
        about: "32 threads make files of 100 MB in pieces of 4 KiB for 300 s (Boxacle, on one disk; 1 and 8 too)",
        text: include_str!("../../profiles/sequential-creates-disk.ffsb"),
    },
];

impl Reference {
    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        REFERENCES.into_iter().find(|reference| reference.name == name)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::profile::{Operation, PUBLISHED, Profile, Sizes, Start};
    use super::*;
    use crate::experiment::Experiment;

    fn profile(name: &str) -> Profile {
        let reference = Reference::named(name).expect("it is shipped");
        reference.text.parse().expect("it is good")
    }

    #[test]
    fn the_documents_experiment_has_the_shipped_profile() {
        let has = |experiment: &Experiment| {
            experiment.sequential_write.as_ref().is_some_and(|work| work.profile == PUBLISHED)
        };
        assert_eq!(REFERENCES[0].text, PUBLISHED);
        assert!(Experiment::built_in().iter().any(has));
    }

    /// Seconds, threads, bytes of a call, and the weights that are not zero.
    #[test]
    fn shipped_profiles_have_the_published_parameters() {
        let of = |name: &str| {
            let profile = profile(name);
            assert!(profile.warnings.is_empty(), "{name}: {:?}", profile.warnings);
            assert_eq!((profile.filesystems.len(), profile.thread_groups.len()), (1, 1));
            let group = &profile.thread_groups[0];
            let weights = Operation::ALL.into_iter().zip(group.weights);
            let weights: Vec<(&str, u32)> =
                weights.map(|(one, weight)| (one.name(), weight)).filter(|one| one.1 > 0).collect();
            let block = group.read.block.max(group.write.block);
            (profile.time, group.threads, block, weights)
        };
        let seconds = Duration::from_secs;
        for (name, time, threads, block, weights) in [
            ("large-file-create", 600, 128, 65536, vec![("create", 1)]),
            ("large-file-create-2007", 300, 64, 65536, vec![("create", 1)]),
            ("mixed", 1800, 128, 4096, vec![("readall", 2), ("write", 1), ("create", 1)]),
            ("sequential-reads", 300, 128, 4096, vec![("readall", 1)]),
            ("sequential-creates", 300, 128, 4096, vec![("create", 1)]),
            ("sequential-creates-disk", 300, 32, 4096, vec![("create", 1)]),
        ] {
            assert_eq!(of(name), (seconds(time), threads, block, weights), "{name}");
        }
        assert_eq!(REFERENCES.len(), 6);
        let mixed = &profile("mixed").filesystems[0];
        assert_eq!((mixed.start, mixed.dirs), (Start::Files(5000), 1000));
        assert_eq!(mixed.sizes, Sizes::Uniform { min: 4 << 10, max: 512 << 10 });
        let read = &profile("sequential-reads").filesystems[0];
        assert_eq!(read.start, Start::Files(1024));
        assert_eq!(read.sizes, Sizes::Uniform { min: 100 << 20, max: 100 << 20 });
    }
}
