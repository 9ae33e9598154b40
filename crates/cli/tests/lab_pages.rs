//! The pages about experiments as a browser shows them: wide and narrow, light and dark.

mod browser;

use std::path::{Path, PathBuf};

use browser::Browser;
use extant_testkit::{Scratch, skip};

/// Widths of a page, in pixels: of a telephone and of a desk.
const WIDTHS: [u32; 2] = [400, 1600];
const SCHEMES: [&str; 2] = ["light", "dark"];

/// Finds the faults of the page as it is shown.
const FAULTS: &str = include_str!("browser/faults.js");

/// The faults of a page in every form that it is shown in.
fn faults(browser: &Browser, page: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for scheme in SCHEMES {
        for width in WIDTHS {
            browser.show_as(width, scheme);
            browser.open(page);
            let is_shown = format!(
                "return [innerWidth === {width}, \
                 matchMedia('(prefers-color-scheme: {scheme})').matches]"
            );
            assert_eq!(browser.run(&is_shown), serde_json::json!([true, true]));
            let mut found = vec![browser.run(FAULTS)];
            // Folded texts lie in the same places whatever their colours are.
            if scheme == SCHEMES[0] {
                browser
                    .run("for (const it of document.querySelectorAll('details')) it.open = true;");
                found.push(browser.run(FAULTS));
            }
            let texts = found.iter().flat_map(|list| list.as_array().expect("a list"));
            let texts = texts.map(|fault| fault.as_str().unwrap_or_default().to_owned());
            let texts = texts.chain(browser.console());
            all.extend(texts.map(|text| format!("{width} {scheme}: {text}")));
        }
    }
    all.dedup();
    all
}

/// All pages below a directory.
fn pages(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(pages(&path));
        } else if path.extension().is_some_and(|it| it == "html") {
            found.push(path);
        }
    }
    found.sort();
    found
}

#[test]
fn every_page_is_whole_wide_and_narrow_light_and_dark() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => skip!("{why}"),
    };
    let home = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiments");
    let home = home.canonicalize().expect("the results of experiments");
    let pages = pages(&home);
    assert!(pages.contains(&home.join("index.html")) && pages.len() > 10, "{pages:?}");
    let mut all = Vec::new();
    for page in &pages {
        let of_page = faults(&browser, page).into_iter();
        all.extend(of_page.map(|fault| format!("{}: {fault}", page.display())));
    }
    assert!(all.is_empty(), "{}", all.join("\n"));
}

/// The test above would find what it is there for.
#[test]
fn faults_of_a_page_are_found() {
    let browser = match Browser::start() {
        Ok(browser) => browser,
        Err(why) => skip!("{why}"),
    };
    let scratch = Scratch::new();
    // An empty picture of nine pixels.
    let picture = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0naHR0cDovL3d3dy53My5vcmcvMj\
        AwMC9zdmcnIHdpZHRoPSc5JyBoZWlnaHQ9JzknLz4=";
    let size = "alt='a' width='9' height='9'";
    for (body, expected) in [
        (format!("<p>Text</p><img {size} src=\"{picture}\">"), vec![]),
        (
            format!("<img {size} src='nowhere.svg'>"),
            vec!["not drawn: img \"a\"", "net::ERR_FILE_NOT_FOUND"],
        ),
        (format!("<img src=\"{picture}\">"), vec!["without a text or a size"]),
        (
            "<p>One</p><p style='margin-top: -30px'>Two</p>".to_owned(),
            vec!["on each other: p \"One\" and p \"Two\""],
        ),
        (
            "<div style='width: 3000px'><p>Text</p></div>".to_owned(),
            vec!["the page is 3008 wide, the window 1600"],
        ),
        (
            "<details><summary>More</summary><p style='width: 3000px'>Text</p></details>"
                .to_owned(),
            vec!["the page is 3008 wide, the window 400"],
        ),
        ("<div style='overflow: auto'><pre style='width: 3000px'>Text</pre></div>".into(), vec![]),
        (
            "<p style='position: relative; left: -40px'>Text</p>".to_owned(),
            vec!["beyond the edge: p \"Text\""],
        ),
        ("<script>console.error('a word')</script>".to_owned(), vec!["a word"]),
        (
            format!(
                "<picture><source srcset=\"{picture}#\"><img {size} src=\"{picture}\"></picture>"
            ),
            vec!["light: of the other scheme"],
        ),
    ] {
        let page = scratch.join("page.html");
        let head = "<!doctype html><link rel='icon' href='data:,'><title>page</title>";
        std::fs::write(&page, format!("{head}<body>{body}</body>")).unwrap();
        let found = faults(&browser, &page);
        assert_eq!(found.is_empty(), expected.is_empty(), "{body}: {found:?}");
        for wanted in expected {
            assert!(found.iter().any(|fault| fault.contains(wanted)), "{body}: {found:?}");
        }
    }
}
