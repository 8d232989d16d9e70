//! Handlers compile in edition 2021 as they do in 2024.

/// Accepted, and run.
#[test]
fn compile_pass_in_edition_2021() {
    trybuild::TestCases::new().pass("../compile_pass/*.rs");
}
