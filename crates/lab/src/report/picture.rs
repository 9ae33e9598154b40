//! Figures as pictures inside a page.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::figures::{Drawn, Figure};

/// A figure in the page: light and dark, in base64.
pub(super) struct Picture {
    pub(super) alt: String,
    pub(super) light: String,
    pub(super) dark: String,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl Picture {
    pub(super) fn of(figure: &Figure) -> Result<Self, String> {
        figure.draw().map(|drawn| Self::drawn(figure, &drawn))
    }

    pub(super) fn drawn(figure: &Figure, drawn: &Drawn) -> Self {
        Self {
            alt: figure.alt(),
            light: STANDARD.encode(&drawn.light),
            dark: STANDARD.encode(&drawn.dark),
            width: drawn.width,
            height: drawn.height,
        }
    }
}
