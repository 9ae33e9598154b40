//! Options of commands that give the files of a source other owners.

use extant::rooms::image::source::{OwnerMap, Owners, parse_owner};

use crate::failure::Failure;

/// Owners of the files that are made.
#[derive(Debug, clap::Args)]
pub(crate) struct OwnerArgs {
    /// Owner and group of every file, as numbers or root; UID alone is the group too
    #[arg(long, value_name = "UID[:GID]", conflicts_with = "map_owner")]
    owner: Option<String>,
    /// Map COUNT users (u:), groups (g:) or both (b:) from FROM on to TO; may be repeated
    #[arg(long, value_name = "[u:|g:|b:]FROM:TO[:COUNT]")]
    map_owner: Vec<String>,
}

impl OwnerArgs {
    pub(crate) fn parse(&self) -> Result<Owners, Failure> {
        let mut map = OwnerMap::default();
        for text in &self.map_owner {
            map.extend(&text.parse().map_err(Failure::usage)?).map_err(Failure::usage)?;
        }
        let all = self.owner.as_deref().map(parse_owner).transpose().map_err(Failure::usage)?;
        Ok(Owners { all, map })
    }
}
