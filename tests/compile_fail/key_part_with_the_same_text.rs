//! Two variants with one text.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Kind {
    #[key_part("created")]
    Created,
    #[key_part("created")]
    Added,
}

fn main() {}
