//! The table of cases names tests that are there.

use std::fs;
use std::path::Path;

#[test]
fn every_case_names_tests_that_exist() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    let table = read("CASES.md");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| |"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for (kind, count) in [('M', 16), ('D', 17), ('C', 15)] {
        for number in 1..=count {
            let case = format!("{kind}{number}");
            let row = rows.iter().find(|row| row[0] == case).unwrap_or_else(|| panic!("{case} is missing"));
            let tests = row[2];
            // What stands between backquotes, every second piece.
            let named: Vec<&str> = tests.split('`').skip(1).step_by(2).filter(|name| name.contains(".rs")).collect();
            assert!(!named.is_empty() || tests.starts_with("not yet"), "{case} has no test");
            for name in named {
                let (file, function) = name.split_once("::").unwrap_or((name, ""));
                let source = read(file);
                assert!(function.is_empty() || source.contains(&format!("fn {function}(")), "{case}: {name}");
            }
        }
    }
}
