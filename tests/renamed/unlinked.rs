//! A test that does not name the library of its package has none of its handlers, and would compare nothing for ever (C13).

use std::process::{Command, Output};
use std::{env, fs};

/// Compares in a process of its own, where the variable is set or not, and the file is there or not.
fn compared(overwrite: bool, committed: Option<&str>) -> (Output, Option<String>) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("catalog.md");
    if let Some(text) = committed {
        fs::write(&file, text).expect("the file");
    }
    let mut test = Command::new(env::current_exe().expect("this test"));
    test.args(["--ignored", "--exact", "compares"]).current_dir(&folder).env_remove("IDEMPOTENT_CATALOG");
    if overwrite {
        test.env("IDEMPOTENT_CATALOG", "overwrite");
    }
    let output = test.output().expect("it runs");
    (output, fs::read_to_string(file).ok())
}

#[test]
#[ignore = "run by the tests below"]
fn compares() {
    deliveries::catalog().compare_with_file("catalog.md").unwrap();
}

const HEADER: &str = "\
| consumer | key | sender | sequence of | retention | horizon | options | function |
|---|---|---|---|---|---|---|---|
";

#[test]
fn a_catalogue_without_handlers_is_an_error_whatever_the_file_holds() {
    let one = format!("{HEADER}| `tests-renamed.ship` | `` {{order}} `` |  |  | 7d |  |  | `tests_renamed::ship` |\n");
    for committed in [None, Some(HEADER), Some(&*one), Some("")] {
        for overwrite in [false, true] {
            let (output, left) = compared(overwrite, committed);
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{committed:?}, overwrite {overwrite}: {said}");
            assert!(said.contains("links no handler") && said.contains("`use your_crate as _;`"), "{said}");
            assert_eq!(left.as_deref(), committed, "nothing is written");
        }
    }
}
