//! `KeyPart` for an enum with fields.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Kind {
    #[key_part("created")]
    Created(u64),
    #[key_part("cancelled")]
    Cancelled,
}

fn main() {}
