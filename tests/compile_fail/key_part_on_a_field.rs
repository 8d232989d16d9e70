//! The attribute on the field of a newtype.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
struct Id(#[key_part("id")] u64);

fn main() {}
