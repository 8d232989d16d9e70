//! A variant with a blank text.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Kind {
    #[key_part(" ")]
    Created,
    #[key_part("")]
    Cancelled,
}

fn main() {}
