//! `KeyPart` for a union.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
union Either {
    number: u32,
    bytes: [u8; 4],
}

fn main() {}
