//! `extant map`: a picture of what lies where in an image.

mod picture;

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};

use kuva::backend::png::PngBackend;

use crate::failure::{At, Failure};
use crate::image_path::ImagePath;
use crate::output::{human_size, printable};
use crate::output_file::OutputFile;
use crate::reader::Image;
use crate::session::Session;
use extant::inspect::{KINDS, VolumeMap};

/// Pixels for each unit of the picture: letters stay sharp.
const PNG_SCALE: f32 = 1.5;

/// Draw groups, metadata, data, free space and fragmentation
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Make an SVG picture; the default, unless the name of the output ends in .png, .html or .json
    #[arg(long, group = "form")]
    svg: bool,
    /// Make a PNG picture
    #[arg(long, group = "form")]
    png: bool,
    /// Make an HTML page with the picture and its figures
    #[arg(long, group = "form")]
    html: bool,
    /// Print the figures as JSON
    #[arg(long, group = "form")]
    json: bool,
    /// Output file; standard output by default
    #[arg(short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Image
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

/// Format of the picture.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Form {
    Svg,
    Png,
    Html,
    Json,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let form = self.form();
        if self.output.is_none() && form == Form::Png && session.out.is_terminal() {
            return Err(Failure::usage(
                "standard output: refusing to write a picture to a terminal: use -o FILE",
            ));
        }
        let inside = ImagePath::parse(&self.image)?;
        let image = Image::open(&inside)?;
        let figures = VolumeMap::of(&image.volume);
        if figures.unreadable > 0 {
            let what = format_args!("cannot read {} structures", figures.unreadable);
            session.error(Failure::at(&inside.name, what))?;
        }
        let name = Path::new(&inside.name).file_name().unwrap_or(&inside.name);
        let name = printable(name.as_encoded_bytes());
        let bytes = match form {
            Form::Json => {
                let mut text = serde_json::to_vec_pretty(&figures).at(&inside.name)?;
                text.push(b'\n');
                text
            }
            Form::Svg => picture::svg(&picture::draw(&figures, &name)).into_bytes(),
            Form::Html => page(&figures, &name).into_bytes(),
            Form::Png => PngBackend::new()
                .with_scale(PNG_SCALE)
                .render_scene(&picture::draw(&figures, &name))
                .at(&inside.name)?,
        };
        match &self.output {
            Some(output) => {
                inside.refuse_as_output(output)?;
                let target = OutputFile::create(output)?;
                target.file().write_all(&bytes).at(output)?;
                target.keep()
            }
            None => session.out.bytes(&bytes),
        }
    }

    /// As asked for, else as the output's name ends, else SVG.
    fn form(&self) -> Form {
        let extension = self.output.as_deref().and_then(Path::extension);
        match extension.and_then(|it| it.to_str()) {
            _ if self.svg => Form::Svg,
            _ if self.png => Form::Png,
            _ if self.html => Form::Html,
            _ if self.json => Form::Json,
            Some("png") => Form::Png,
            Some("html" | "htm") => Form::Html,
            Some("json") => Form::Json,
            _ => Form::Svg,
        }
    }
}

/// A page that needs nothing else: the picture, and its figures as a table.
fn page(figures: &VolumeMap, name: &str) -> String {
    let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let picture = picture::svg(&picture::draw(figures, &name));
    let rows: String = KINDS
        .iter()
        .map(|(kind, what, color)| {
            let blocks = figures.totals[*kind as usize];
            let bytes = human_size(blocks.saturating_mul(figures.block_size.into()));
            format!(
                "<tr><td style=\"background:{color};width:1.5em\"></td><td>{what}</td>\
                 <td>{blocks}</td><td>{bytes}</td></tr>\n"
            )
        })
        .collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title>\n\
         <style>body{{font-family:sans-serif}}td{{padding:2px 12px;text-align:right}}\
         td:nth-child(2){{text-align:left}}</style></head>\n<body>\n{picture}\n<table>\n\
         <tr><th></th><th>kind</th><th>blocks</th><th>size</th></tr>\n{rows}</table>\n</body></html>\n"
    )
}
