//! An option of the derive that there is not.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
#[key_part(rename = "id")]
struct Id(u64);

fn main() {}
