//! What the macros refuse, with the messages that users see, and what they must accept.
//!
//! Messages are compared with the `.stderr` file beside each fixture. After a change that is meant to change them:
//! `TRYBUILD=overwrite cargo test -p tests --test ui`, and read the difference.

/// Accepted, and run.
#[test]
fn compile_pass() {
    trybuild::TestCases::new().pass("compile_pass/*.rs");
}

/// Refused, with this message.
#[test]
fn compile_fail() {
    trybuild::TestCases::new().compile_fail("compile_fail/*.rs");
}
