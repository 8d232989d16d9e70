//! The attribute in other forms than its own.

use idempotent_runtime::KeyPart;

#[derive(KeyPart)]
enum Kind {
    #[key_part = "created"]
    Created,
    #[key_part]
    Added,
    #[key_part(added)]
    Cancelled,
}

fn main() {}
