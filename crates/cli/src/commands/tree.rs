//! `extant tree`: a directory and all below it, drawn.
use extant::rooms::ondisk::inode::FileType;
use extant::rooms::reader::{Follow, VolumeRead};

use super::Operands;
use crate::describe::JsonFile;
use crate::failure::Failure;
use crate::output::human_size;
use crate::reader::{Descend, Image, Name, Walked};
use crate::say;
use crate::session::Session;

/// Draw a tree of directories
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Include names that begin with a dot
    #[arg(short)]
    all: bool,
    /// List directories only
    #[arg(short)]
    directories: bool,
    /// Print the full path of each file
    #[arg(short)]
    full_path: bool,
    /// Print the size of each file
    #[arg(short)]
    size: bool,
    /// Print sizes in powers of 1024, such as 1.5K
    #[arg(short = 'h')]
    human: bool,
    /// Maximum depth
    #[arg(short = 'L', value_name = "LEVELS", value_parser = clap::value_parser!(u32).range(1..))]
    levels: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    operands: Operands,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        if self.json {
            return self.run_json(session);
        }
        let (mut directories, mut files) = (0_u64, 0_u64);
        self.operands.each(session, |image, path, session| {
            let start = image.resolve(path, Follow::Yes)?;
            // For each level above the present one: whether more names of that directory follow.
            let mut has_more: Vec<bool> = Vec::new();
            image.walk_some(start, path, session, &self.keeps(image), &mut |walked, session| {
                match walked.file.is_dir() {
                    true => directories += u64::from(walked.depth > 0),
                    false => files += 1,
                }
                has_more.truncate(walked.depth.saturating_sub(1) as usize);
                for &more in &has_more {
                    session.out.bytes(if more { "│   " } else { "    " }.as_bytes())?;
                }
                if walked.depth > 0 {
                    let branch = if walked.is_last { "└── " } else { "├── " };
                    session.out.bytes(branch.as_bytes())?;
                    has_more.push(!walked.is_last);
                }
                self.show(walked, session)?;
                if walked.file.file_type() == FileType::Symlink
                    && let Ok(target) = image.volume.read_link(walked.file.number)
                {
                    session.out.bytes(b" -> ")?;
                    session.out.name(&target)?;
                }
                session.out.bytes(b"\n")?;
                Ok(self.descend(walked))
            })
        })?;
        let plural = |count: u64, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        let directories = plural(directories, "directory", "directories");
        match self.directories {
            true => say!(session, "\n{directories}"),
            false => say!(session, "\n{directories}, {}", plural(files, "file", "files")),
        }
    }

    fn run_json(&self, session: &mut Session) -> Result<(), Failure> {
        let mut found = Vec::new();
        self.operands.each(session, |image, path, session| {
            let start = image.resolve(path, Follow::Yes)?;
            image.walk_some(start, path, session, &self.keeps(image), &mut |walked, _| {
                found.push(JsonFile::new(image, &walked.path, &walked.file));
                Ok(self.descend(walked))
            })
        })?;
        session.out.json_array(|element| found.iter().try_for_each(element))
    }

    /// Which names are shown. One that cannot be read is kept: the walk tells of it.
    fn keeps(&self, image: &Image) -> impl Fn(&Name) -> bool {
        |name| {
            let is_hidden = name.name.starts_with(b".");
            let is_dir = || image.volume.inode(name.inode).map_or(true, |file| file.is_dir());
            (self.all || !is_hidden) && (!self.directories || is_dir())
        }
    }

    fn descend(&self, walked: &Walked) -> Descend {
        match self.levels {
            Some(levels) if walked.depth >= levels => Descend::No,
            _ => Descend::Yes,
        }
    }

    fn show(&self, walked: &Walked, session: &mut Session) -> Result<(), Failure> {
        if self.size || self.human {
            let size = match self.human {
                true => human_size(walked.file.size),
                false => walked.file.size.to_string(),
            };
            session.out.bytes(format!("[{size:>11}]  ").as_bytes())?;
        }
        let is_whole = self.full_path || walked.depth == 0;
        session.out.name(if is_whole { &walked.path } else { &walked.name })
    }
}
