//! The schemes of objects.

/// A scheme.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Scheme {
    Https,
    Http,
    S3,
    Gs,
    Azure,
}

impl Scheme {
    pub(crate) const ALL: [Self; 5] = [Self::Https, Self::Http, Self::S3, Self::Gs, Self::Azure];

    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Https => "https://",
            Self::Http => "http://",
            Self::S3 => "s3://",
            Self::Gs => "gs://",
            Self::Azure => "az://",
        }
    }

    /// The form of its URLs.
    pub(super) fn form(self) -> &'static str {
        match self {
            Self::Https => "https://HOST/PATH",
            Self::Http => "http://HOST/PATH",
            Self::S3 => "s3://BUCKET/KEY",
            Self::Gs => "gs://BUCKET/KEY",
            Self::Azure => "az://CONTAINER/KEY",
        }
    }
}
