//! `KeyPart` for a struct without fields.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
struct Nothing;

fn main() {}
