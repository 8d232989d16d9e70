//! `KeyPart` for an enum without variants.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Never {}

fn main() {}
