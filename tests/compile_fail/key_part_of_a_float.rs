//! `KeyPart` for a newtype of what is no part of a key.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
struct Price(f64);

fn main() {}
