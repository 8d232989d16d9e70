//! What the macros refuse, with the messages that users see, and what they must accept.
//!
//! Messages are compared with the `.stderr` file beside each fixture, and all of them are on one page,
//! `compile_fail/ERRORS.md`. After a change that is meant to change them: `TRYBUILD=overwrite cargo test -p tests --test
//! ui` writes both. Read the difference.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

/// Accepted, and run.
#[test]
fn compile_pass() {
    trybuild::TestCases::new().pass("compile_pass/*.rs");
}

/// Refused, with this message.
#[test]
fn compile_fail() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("compile_fail/*.rs");
    // Dropped, it compiles them.
    drop(cases);
    if overwrites() {
        fs::write(errors_page(), render_errors()).expect("the page of errors");
    }
}

#[test]
fn the_page_of_errors_has_every_error() {
    // While the messages are being rewritten, so is the page.
    if !overwrites() {
        let page = fs::read_to_string(errors_page()).unwrap_or_default();
        assert!(page == render_errors(), "write the page anew: TRYBUILD=overwrite cargo test -p tests --test ui");
    }
}

fn overwrites() -> bool {
    env::var("TRYBUILD").is_ok_and(|value| value == "overwrite")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("compile_fail")
}

fn errors_page() -> PathBuf {
    folder().join("ERRORS.md")
}

/// Every fixture with its error, as a terminal shows it.
fn render_errors() -> String {
    let mut fixtures: Vec<PathBuf> = fs::read_dir(folder())
        .expect("the folder of fixtures")
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect();
    fixtures.sort();
    let mut page = format!(
        "# {} errors\n\nWhat the compiler says about each of the fixtures beside this page. Made by\n\
         `TRYBUILD=overwrite cargo test -p tests --test ui`, and compared by the same test.\n",
        fixtures.len()
    );
    for fixture in fixtures {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (source, error) = (read(&fixture), read(&fixture.with_extension("stderr")));
        let (comment, code) = source.split_once("\n\n").expect("a comment, and code below it");
        let comment: Vec<&str> = comment.lines().map(|line| line.trim_start_matches("//!").trim()).collect();
        let name = fixture.file_stem().unwrap_or_default().to_string_lossy();
        let code = code.trim_end().trim_end_matches("fn main() {}").trim_end();
        let (comment, error) = (comment.join(" "), error.trim_end());
        let _ = write!(page, "\n## {name}\n\n{comment}\n\n```rust\n{code}\n```\n\n```text\n{error}\n```\n");
    }
    page
}
