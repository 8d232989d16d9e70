//! A variant with two texts.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Kind {
    #[key_part("created")]
    #[key_part("added")]
    Created,
}

fn main() {}
