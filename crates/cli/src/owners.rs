//! Users and groups by number, or by names that an image's own tables know.

use extant::rooms::reader::{Error, Follow, VolumeRead};

use crate::failure::Failure;
use crate::reader::Image;

/// The largest table of names that is read.
const TABLE_LIMIT: u64 = 16 << 20;

/// Whose numbers are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Owners {
    Users,
    Groups,
}

impl Owners {
    /// The file of an image with their names.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Self::Users => "/etc/passwd",
            Self::Groups => "/etc/group",
        }
    }

    /// The number that stands in `text`; `None` for a name that a table must know.
    pub(crate) fn number(self, text: &str) -> Result<Option<u32>, Failure> {
        match text.parse() {
            // System calls take it for no number.
            Ok(u32::MAX) => {}
            Ok(number) => return Ok(Some(number)),
            // In every image, as for chown(1) and the kernel.
            Err(_) if text == "root" => return Ok(Some(0)),
            Err(_) if text.is_empty() || text.bytes().any(|byte| !byte.is_ascii_digit()) => {
                return Ok(None);
            }
            Err(_) => {}
        }
        Err(Failure::usage(format_args!("invalid user or group ID: {text}")))
    }

    /// The number that a table has for a name.
    pub(crate) fn find(table: &[u8], name: &str) -> Option<u32> {
        let text = String::from_utf8_lossy(table);
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
        })
    }

    /// A name is in no table. `place` is where that is, with its image.
    pub(crate) fn unknown(self, name: &str, place: &str) -> Failure {
        let what = match self {
            Self::Users => "user",
            Self::Groups => "group",
        };
        Failure::new(format_args!("unknown {what} '{name}': not a number and not found in {place}"))
    }

    /// The number that `text` names in an image.
    pub(crate) fn number_in(self, text: &str, image: &Image) -> Result<u32, Failure> {
        if let Some(number) = self.number(text)? {
            return Ok(number);
        }
        let path = self.table().as_bytes();
        let unknown = || self.unknown(text, &image.place(path));
        let file = match image.volume.resolve(path, Follow::Yes) {
            Err(Error::NotFound) => return Err(unknown()),
            file => file.map_err(|error| image.failure(path, error))?,
        };
        let mut table = vec![0; file.size.min(TABLE_LIMIT) as usize];
        let read = image.volume.read(file.number, 0, &mut table);
        let count = read.map_err(|error| image.failure(path, error))?;
        Self::find(&table[..count], text).ok_or_else(unknown)
    }
}
