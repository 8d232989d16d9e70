//! `KeyPart` for a struct with two fields.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
struct OrderLine {
    order: u64,
    line: u32,
}

fn main() {}
